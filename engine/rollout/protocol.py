"""What a rollout engine is to those who use it. No torch.

An engine holds many sequences of many tasks and advances them together. It is single-threaded:
`EngineThread` (service.py) is the way to use one from several threads.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from ..types import Generation, GenerationRequest


@dataclass(frozen=True)
class EngineStats:
    """A picture of an engine, for heartbeats, planner and pages."""

    num_slots: int = 0  # sequences that it can hold at once
    num_running: int = 0  # sequences in slots
    num_waiting: int = 0  # sequences accepted and not yet in a slot
    tokens_generated: int = 0  # since the engine was made
    tokens_prefilled: int = 0  # prompt tokens computed; a prompt shared by a group counts once
    tokens_per_s: float = 0.0  # generated, over the last seconds
    adapters_in_use: int = 0  # adapters that some held sequence uses
    adapters_cached: int = 0  # unused adapters kept for a while
    adapters_free: int = 0  # further adapters that would fit now, at the largest rank seen so far;
    # unused ones make way, so they count as free
    adapter_slots: int = 0  # adapters that fit together; 0: the engine does not say
    kv_bytes: int = 0  # memory of the KV cache that is in use
    kv_bytes_budget: int = 0  # and that may be used at most; 0: the engine does not say
    kv_tokens: int = 0  # tokens that fit at all; 0: the engine does not say
    kv_tokens_free: int = 0  # tokens that would still fit; kept sessions count as free
    sessions_kept: int = 0  # trajectories between two turns whose KV is kept
    preemptions: int = 0  # sequences put back to wait for lack of KV, since the engine was made
    errors: int = 0  # sequences that ended in an error
    busy_s: float = 0.0  # in which it computed, since the engine was made
    sequence_s: float = 0.0  # the same, times the sequences that were then in slots


class RolloutEngine(Protocol):
    """Generates with the adapter that each request names, and with no other.

    An adapter that is unknown, unreadable, or of another digest than the request's ends that
    request with `Generation.error`; it never falls back to the base model.
    """

    @property
    def num_slots(self) -> int:
        """Sequences that it can hold at once."""

    @property
    def num_free_slots(self) -> int:
        """Slots that neither running nor waiting sequences will take."""

    @property
    def has_work(self) -> bool:
        """Whether `step` has anything to do."""

    def submit(self, requests: Sequence[GenerationRequest]) -> None:
        """Accept sequences; those without a free slot wait. Ids must not be held already."""

    def forget(self, sessions: Iterable[str]) -> None:
        """Drop the KV kept for these sessions, if any: their trajectories have ended."""

    def cancel(self, ids: Iterable[str]) -> None:
        """End sequences; the next `step` returns them as "cancelled". Unknown ids are ignored."""

    def step(self) -> list[Generation]:
        """Advance every sequence by a token; returns those that ended, whatever the reason.

        A fault of one request (its adapter, its length) ends that request with an error. Raises
        only if the engine itself is broken; `reset` makes it usable again.
        """

    def reset(self) -> None:
        """Forget every sequence."""

    def stats(self) -> EngineStats: ...
