"""A rollout engine that sleeps: decode steps of all sequences in lock step, as a cost model says.

The device keeps a clock of its own. A step ends so long after the one before, not so long after it
was asked for: that this process is late for a step does not slow the device, as a busy host does
not slow an accelerator whose next step it has queued.
"""

from __future__ import annotations

import heapq
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from ..rollout.protocol import EngineStats
from ..types import Generation, GenerationRequest
from .script import Script

SPEED_WINDOW_S = 10.0
LOGPROB = -1.0  # of every token
TOKEN = 5  # any one that is no stop id
MAX_LATE_S = 1.0  # of the device's clock: a process that slept longer was stopped


@dataclass(frozen=True)
class _Sequence:
    request: GenerationRequest
    tokens: int
    started_at: float  # epoch s


class EmulatedEngine:
    """`engine.rollout.protocol.RolloutEngine`. KV and adapters are not modelled: all fit."""

    def __init__(
        self,
        script: Script,
        num_slots: int,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._script, self._num_slots = script, num_slots
        self._clock, self._sleep = clock, sleep
        self._tokens = script.turn_tokens()
        self._waiting: deque[GenerationRequest] = deque()
        self._running: dict[str, _Sequence] = {}
        self._ends: list[tuple[int, str]] = []  # heap of (number of its last step, id)
        self._done: list[Generation] = []  # ended between two steps
        self._steps = self._made = self._errors = 0
        self._due = 0.0  # when the device ends the step before, by `clock`
        self._speed: deque[tuple[float, int]] = deque([(clock(), 0)])  # (when, tokens until then)

    @property
    def num_slots(self) -> int:
        return self._num_slots

    @property
    def num_free_slots(self) -> int:
        return max(0, self._num_slots - len(self._running) - len(self._waiting))

    @property
    def has_work(self) -> bool:
        return bool(self._running or self._waiting or self._done)

    def submit(self, requests: Sequence[GenerationRequest]) -> None:
        """Those that the script does not know end with an error: nobody may train on them."""
        if not self._running and not self._waiting:
            self._due = self._clock()
        for request in requests:
            if request.seed in self._tokens:
                self._waiting.append(request)
            else:
                self._errors += 1
                text = "The emulation's script has no such sequence."
                self._done.append(Generation(request.id, finish_reason="error", error=text))

    def forget(self, sessions: Iterable[str]) -> None:
        """Nothing is kept."""

    def cancel(self, ids: Iterable[str]) -> None:
        unwanted = set(ids)
        held = [id for id in self._running if id in unwanted]
        held += [request.id for request in self._waiting if request.id in unwanted]
        for id in held:
            self._running.pop(id, None)
            self._done.append(Generation(id, finish_reason="cancelled"))
        if held:  # a later turn has the same id: what is left of this one must not end it
            self._waiting = deque(r for r in self._waiting if r.id not in unwanted)
            self._ends = [(step, id) for step, id in self._ends if id not in unwanted]
            heapq.heapify(self._ends)

    def step(self) -> list[Generation]:
        """One decode step of all that run, which takes its time."""
        self._admit()
        if self._running:
            self._pass_time()
            self._end_sequences()
        done, self._done = self._done, []
        return done

    def _admit(self) -> None:
        while self._waiting and len(self._running) < self._num_slots:
            request = self._waiting.popleft()
            tokens = min(self._tokens[request.seed], request.sampling.max_new_tokens)
            self._running[request.id] = _Sequence(request, tokens, time.time())
            heapq.heappush(self._ends, (self._steps + tokens, request.id))

    def _pass_time(self) -> None:
        now = self._clock()
        before = max(self._due, now - MAX_LATE_S)
        self._due = before + self._script.decode_s(len(self._running))
        if self._due > now:
            self._sleep(self._due - now)
        self._steps += 1
        self._made += len(self._running)
        self._speed.append((self._due, self._made))
        while self._due - self._speed[0][0] > SPEED_WINDOW_S:
            self._speed.popleft()

    def _end_sequences(self) -> None:
        finished_at = time.time()
        while self._ends and self._ends[0][0] <= self._steps:
            _, id = heapq.heappop(self._ends)
            self._done.append(_generation(self._running.pop(id), finished_at))

    def reset(self) -> None:
        self._waiting.clear()
        self._running.clear()
        self._ends.clear()
        self._done.clear()

    def stats(self) -> EngineStats:
        (first, before), (last, until) = self._speed[0], self._speed[-1]
        adapters = {sequence.request.adapter.name for sequence in self._running.values()}
        return EngineStats(
            num_slots=self._num_slots,
            num_running=len(self._running),
            num_waiting=len(self._waiting),
            tokens_generated=self._made,
            tokens_per_s=(until - before) / (last - first) if last > first else 0.0,
            adapters_in_use=len(adapters),
            errors=self._errors,
        )


def _generation(sequence: _Sequence, finished_at: float) -> Generation:
    request, tokens = sequence.request, sequence.tokens
    stop = request.sampling.stop_ids[:1] or (TOKEN,)
    return Generation(
        id=request.id,
        ids=(TOKEN,) * (tokens - 1) + stop,
        logprobs=(LOGPROB,) * tokens,
        finish_reason="stop",
        digest=request.adapter.digest,
        started_at=sequence.started_at,
        finished_at=finished_at,
    )
