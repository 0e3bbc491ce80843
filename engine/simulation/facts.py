"""What happened, as the checkers of invariants read it: a ledger apart from the store's own state.

The store writes a fact when, and only when, it changed a row; so a store with a planted bug still
reports truly what it did.
"""

from __future__ import annotations

from dataclasses import dataclass

from engine.manager.snapshot import Command, Snapshot


@dataclass(frozen=True)
class Sample:
    """A finished trajectory, as far as the invariants ask."""

    group: str
    attempt: int
    index: int
    digest: str  # of the adapter that the engine says it applied
    num_tokens: int = 0
    began_at: float = 0.0


@dataclass(frozen=True)
class Planned:
    snapshot: Snapshot
    commands: tuple[Command, ...]


@dataclass(frozen=True)
class StepOpened:
    task: str
    number: int


@dataclass(frozen=True)
class GroupDispatched:
    task: str
    group: str
    attempt: int


@dataclass(frozen=True)
class GroupFinished:
    task: str
    step: int
    group: str
    samples: tuple[Sample, ...]


@dataclass(frozen=True)
class Committed:
    task: str
    number: int  # the version
    digest: str
    batch: tuple[tuple[Sample, ...], ...]  # what the pass trained on, by group


@dataclass(frozen=True)
class TaskEnded:
    task: str
    state: str
    reason: str


Fact = Planned | StepOpened | GroupDispatched | GroupFinished | Committed | TaskEnded
