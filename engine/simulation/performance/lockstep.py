"""A rollout engine in virtual time: all its sequences advance by one token a decode step.

Nothing is sliced: between two events the number of sequences stays, so the time of the next one,
the end of a sequence or the end of the KV, follows from a count of decode steps. Where KV is
bounded, sequences are admitted as long as what they hold now fits, as vLLM does it, and when it
runs out the youngest are put back to wait in front and computed again: what is generated twice
costs time and counts no tokens. Decode steps are taken to be continuous, which is off by less than
one step an event.

Knows nothing of tasks, groups or planners: `owner` and `adapter` are only labels.
"""

from __future__ import annotations

import heapq
from collections import Counter, deque
from dataclasses import dataclass, field
from math import inf
from typing import Any

from .cost_models import EngineCost

EPSILON = 1e-6  # decode steps; below it, differences are rounding
WATERMARK = 0.01  # of the KV, left free when sequences are admitted


@dataclass(eq=False)
class Sequence:
    """A turn to generate."""

    label: Any
    tokens: int  # to generate
    adapter: str
    owner: str
    context: int = 0  # tokens held before the first one is generated
    unread: float = 0.0  # of these, to be computed first
    # While it runs
    since_step: float = 0.0
    order: int = -1  # of admission; -1: it waits
    left: float = field(init=False)  # tokens still to generate, when it last waited
    device_s: float = 0.0  # its share of the engine's work, when it last left
    share_before: float = 0.0

    def __post_init__(self) -> None:
        self.left = float(self.tokens)


class LockstepEngine:
    """Figures are as of `now`: call `advance` before reading or changing anything."""

    def __init__(self, cost: EngineCost, now: float, is_multi_lora: bool = True) -> None:
        self.cost, self.now, self.is_multi_lora = cost, now, is_multi_lora
        self.is_paused = False
        self.steps = 0.0  # decode steps done
        self.busy_s = self.sequence_s = 0.0
        self.share_s = 0.0  # device-seconds of a sequence that is always at work
        self.tokens = 0.0  # generated, not counting those of preempted turns a second time
        self.preemptions = 0
        self.owner_s: dict[str, float] = {}  # device-seconds: time, shared among those at work
        self._stall_s = 0.0  # of reading prompts, before decoding goes on
        self._ends: list[tuple[float, int, Sequence]] = []
        self._admitted: list[tuple[int, Sequence]] = []  # oldest first, with such as left
        self._waiting: deque[Sequence] = deque()
        self._adapters: Counter[str] = Counter()
        self._owners: Counter[str] = Counter()
        self._num_running = 0
        self._num_admitted = 0
        self._held_at_zero = 0.0  # KV tokens held = this + running sequences * steps

    @property
    def num_running(self) -> int:
        return self._num_running

    @property
    def num_held(self) -> int:
        """Sequences at work and waiting."""
        return self._num_running + len(self._waiting)

    @property
    def kv_held(self) -> float:
        return self._held_at_zero + self._num_running * self.steps

    @property
    def is_working(self) -> bool:
        return self._num_running > 0 and not self.is_paused

    @property
    def decode_s(self) -> float:
        adapters = 1 if self.is_multi_lora else max(1, len(self._adapters))
        return self.cost.decode_s(self._num_running, adapters)

    def advance(self, now: float) -> None:
        """Work up to now. No event may lie in between."""
        passed_s, self.now = now - self.now, now
        if not self.is_working or passed_s <= 0:
            return
        self.busy_s += passed_s
        self.sequence_s += passed_s * self._num_running
        self.share_s += passed_s / self._num_running
        for owner, count in self._owners.items():
            self.owner_s[owner] += passed_s * count / self._num_running
        stalled_s = min(passed_s, self._stall_s)
        self._stall_s -= stalled_s
        done = (passed_s - stalled_s) / self.decode_s
        self.steps += done
        self.tokens += done * self._num_running

    def next_event_at(self) -> float:
        """When the next sequence ends or the KV runs out; inf if neither will."""
        if not self.is_working:
            return inf
        self._drop_stale()
        steps = self._ends[0][0] - self.steps
        if self._is_kv_short_of(self._num_running * steps):
            steps = (self.cost.kv_tokens - self.kv_held) / self._num_running
        return self.now + self._stall_s + max(0.0, steps) * self.decode_s

    def add(self, sequence: Sequence) -> None:
        self._waiting.append(sequence)
        self._admit()

    def settle(self) -> list[Sequence]:
        """What the moment asks for: returns the sequences that end now, and frees KV."""
        ended = []
        self._drop_stale()
        while self._ends and self._ends[0][0] <= self.steps + EPSILON:
            sequence = heapq.heappop(self._ends)[2]
            self._leave(sequence)
            ended.append(sequence)
            self._drop_stale()
        if ended:
            self._admit()
        if self._is_kv_short_of(self._num_running * EPSILON):
            self._preempt()
        return ended

    def _is_kv_short_of(self, tokens: float) -> bool:
        """Whether there is less room than for so many more. One sequence may always run."""
        limit = self.cost.kv_tokens
        return 0 < limit <= self.kv_held + tokens and self._num_running > 1

    def _admit(self) -> None:
        room = self.cost.kv_tokens * (1 - WATERMARK) if self.cost.kv_tokens else inf
        while self._waiting and self._num_running < self.cost.slots:
            sequence = self._waiting[0]
            held = sequence.context + sequence.tokens - sequence.left
            if self._num_running and self.kv_held + held + self._num_running > room:
                return
            self._start(self._waiting.popleft(), held)

    def _start(self, sequence: Sequence, held: float) -> None:
        self._num_admitted += 1
        sequence.order, sequence.since_step = self._num_admitted, self.steps
        sequence.share_before = self.share_s
        self._stall_s += sequence.unread * self.cost.prefill_s
        heapq.heappush(self._ends, (self.steps + sequence.left, sequence.order, sequence))
        if self.cost.kv_tokens:
            self._admitted.append((sequence.order, sequence))
        self._held_at_zero += held - self.steps
        self._num_running += 1
        self._adapters[sequence.adapter] += 1
        self._owners[sequence.owner] += 1
        self.owner_s.setdefault(sequence.owner, 0.0)

    def _leave(self, sequence: Sequence) -> None:
        left = sequence.left - (self.steps - sequence.since_step)
        held = sequence.context + sequence.tokens - left
        sequence.left, sequence.order = max(0.0, left), -1
        sequence.device_s += self.share_s - sequence.share_before
        self._held_at_zero -= held - self.steps
        self._num_running -= 1
        if not self._num_running:
            self._held_at_zero = -0.0
        for counts, label in ((self._adapters, sequence.adapter), (self._owners, sequence.owner)):
            counts[label] -= 1
            if not counts[label]:
                del counts[label]

    def _preempt(self) -> None:
        """Put the youngest back, until everybody else has room for a token."""
        while self._is_kv_short_of(self._num_running):
            order, youngest = self._admitted.pop()
            if youngest.order != order:
                continue
            self._leave(youngest)
            youngest.unread = youngest.context + youngest.tokens - youngest.left
            self._waiting.appendleft(youngest)
            self.preemptions += 1

    def _drop_stale(self) -> None:
        """Forget what was put back or has left."""
        while self._ends and self._ends[0][1] != self._ends[0][2].order:
            heapq.heappop(self._ends)
        if len(self._admitted) > 2 * self._num_running + 64:
            self._admitted = [(n, one) for n, one in self._admitted if one.order == n]
