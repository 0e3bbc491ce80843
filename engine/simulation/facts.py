"""What happened, as the checkers of invariants read it: a ledger apart from the store's own state.

The store writes a fact when, and only when, it changed a row; so a store with a planted bug still
reports truly what it did.
"""

from __future__ import annotations

from dataclasses import dataclass

from engine.manager.snapshot import Command, Snapshot


@dataclass(frozen=True)
class Sample:
    """A trajectory, as far as it has come and the invariants ask."""

    group: str
    attempt: int
    index: int
    turns: int = 1  # that it takes
    digests: tuple[str, ...] = ()  # by turn: of the adapter that the engine says it applied
    num_tokens: int = 0
    busy_s: float = 0.0  # device-seconds that it took
    worker: str = ""  # name of the rollout worker that has its KV


@dataclass(frozen=True)
class Planned:
    snapshot: Snapshot
    commands: tuple[Command, ...]


@dataclass(frozen=True)
class StepOpened:
    task: str
    number: int
    version: int


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
class PassTaken:
    task: str
    step: int
    ready_order: int


@dataclass(frozen=True)
class Committed:
    task: str
    number: int  # the version
    digest: str
    batch: tuple[tuple[Sample, ...], ...]  # what the pass trained on, by group


@dataclass(frozen=True)
class Settled:
    """What a step took was found to differ from what it was charged."""

    task: str
    owed_s: float  # device-seconds; negative where it was charged too much


@dataclass(frozen=True)
class TaskEnded:
    task: str
    state: str
    reason: str


Fact = (
    Planned
    | StepOpened
    | GroupDispatched
    | GroupFinished
    | PassTaken
    | Committed
    | Settled
    | TaskEnded
)
