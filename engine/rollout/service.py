"""Hosting a rollout engine: its own thread, a bounded inbox, completions by callback. No torch.

Every request that `submit` accepted ends once: as a Generation given to `on_done`, or in the list
that `drain` returns. An exception of the engine ends what it held with errors; the thread goes on.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from dataclasses import replace

from ..types import Generation, GenerationRequest
from .device_share import DeviceShare
from .protocol import EngineStats, RolloutEngine

log = logging.getLogger(__name__)

OnDone = Callable[[list[Generation]], None]
"""Called in the engine's thread: it must only put the generations somewhere and return."""


class EngineThread:
    """Thread-safe. The engine lives in the thread and must not be used by anyone else."""

    def __init__(
        self, make: Callable[[], RolloutEngine], on_done: OnDone, max_held: int | None = None
    ) -> None:
        """Starts the thread, has it make the engine, and raises what that raises.

        Made there because every thread that computes gets a team of OpenMP threads, and once all
        teams together have more threads than there are cores, each waits for the others by
        sleeping: a step of thousands of short operations then takes half as long again.
        max_held: sequences accepted at most, running and waiting; by default half as many again as
        there are slots, so that a freed slot never waits for a message.
        """
        self._on_done = on_done
        self._changed = threading.Condition()
        self._held: dict[str, GenerationRequest] = {}  # accepted and not ended
        self._inbox: list[GenerationRequest] = []  # accepted, the engine does not know them yet
        self._unwanted: list[str] = []
        self._ended: list[str] = []  # sessions
        self._is_closed = False
        self._kv_tokens = 0  # most that was ever free: all of it, before the first sequence
        self._has_told_adapters = False
        self._busy_s = self._sequence_s = 0.0
        self._share = DeviceShare()
        made: Future[RolloutEngine] = Future()
        self._thread = threading.Thread(
            target=self._live, args=(make, made), name="rollout engine", daemon=True
        )
        self._thread.start()
        self._engine = engine = made.result()
        self._max_held = max_held or engine.num_slots + engine.num_slots // 2

    def submit(self, requests: Sequence[GenerationRequest]) -> bool:
        """Accept all the requests, or none; blocks while the engine is full.

        Returns whether they were accepted: False means the thread is closed. Raises: ValueError if
        an id is held already.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._is_closed or self._has_room(len(requests)))
            if self._is_closed:
                return False
            new = {request.id: request for request in requests}
            if len(new) < len(requests) or new.keys() & self._held.keys():
                raise ValueError("a sequence of this id is in the engine already")
            self._held |= new
            self._inbox += requests
            self._changed.notify_all()
            return True

    def cancel(self, ids: Iterable[str]) -> None:
        """End sequences; each comes back as "cancelled", unless it ended before."""
        with self._changed:
            self._unwanted += ids
            self._changed.notify_all()

    def forget(self, sessions: Iterable[str]) -> None:
        """Drop the KV kept for these sessions: their trajectories have ended."""
        with self._changed:
            self._ended += sessions
            self._changed.notify_all()

    def stats(self) -> EngineStats:
        """As of the last step."""
        return self._stats

    @property
    def is_alive(self) -> bool:
        """False once it was closed, or the engine broke beyond a reset."""
        return self._thread.is_alive()

    def close(self) -> None:
        """Accept nothing more and stop after the present step. Returns at once."""
        self._is_closed = True
        # Also called from a signal handler, which may have interrupted a holder of the lock.
        threading.Thread(target=self._wake, daemon=True).start()

    def join(self, timeout_s: float | None = None) -> None:
        """Wait for the thread to end after `close`."""
        self._thread.join(timeout_s)

    def drain(self, timeout_s: float | None = None) -> list[GenerationRequest]:
        """Close, wait, and return every request that did not end, as it came."""
        self.close()
        self.join(timeout_s)
        with self._changed:
            return list(self._held.values())

    def _has_room(self, count: int) -> bool:
        """More than fits at all is taken when nothing else is held."""
        return not self._held or len(self._held) + count <= self._max_held

    def _wake(self) -> None:
        with self._changed:
            self._changed.notify_all()

    def _live(self, make: Callable[[], RolloutEngine], made: Future[RolloutEngine]) -> None:
        try:
            self._engine = make()
            self._stats = self._completed(self._engine.stats())
        except BaseException as error:
            made.set_exception(error)
            return
        made.set_result(self._engine)
        self._run()

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(
                    lambda: (
                        self._is_closed
                        or self._inbox
                        or self._unwanted
                        or self._ended
                        or self._held
                    )
                )
                if self._is_closed:
                    return
                requests, self._inbox = self._inbox, []
                unwanted, self._unwanted = self._unwanted, []
                ended, self._ended = self._ended, []
            began = time.monotonic()
            done = self._tick(requests, unwanted, ended)
            took_s = time.monotonic() - began
            self._busy_s += took_s
            stats = self._engine.stats()
            running = stats.num_running + len(done)
            self._sequence_s += took_s * running
            self._share.worked(time.time(), took_s, running)
            self._stats = self._completed(stats)
            if done:
                self._deliver([self._charged(generation) for generation in done])

    def _charged(self, generation: Generation) -> Generation:
        share = self._share.between(generation.started_at, generation.finished_at)
        return replace(generation, device_s=share)

    def _completed(self, stats: EngineStats) -> EngineStats:
        """The engine's picture; what fits at all is worked out where it does not say."""
        self._kv_tokens = max(self._kv_tokens, stats.kv_tokens_free)
        self._has_told_adapters |= stats.adapters_free > 0
        slots = stats.adapters_in_use + stats.adapters_free if self._has_told_adapters else 0
        return replace(
            stats,
            kv_tokens=stats.kv_tokens or self._kv_tokens,
            adapter_slots=stats.adapter_slots or slots,
            busy_s=self._busy_s,
            sequence_s=self._sequence_s,
        )

    def _tick(
        self, requests: list[GenerationRequest], unwanted: list[str], ended: list[str]
    ) -> list[Generation]:
        """One step of the engine; if it breaks, everything that it held ends with the error."""
        try:
            self._engine.submit(requests)
            self._engine.cancel(unwanted)
            self._engine.forget(ended)
            return self._engine.step()
        except Exception as error:
            log.exception("the rollout engine failed; its sequences end with an error")
            self._engine.reset()
            with self._changed:
                lost = self._held.keys() - {request.id for request in self._inbox}
            text = f"The rollout engine failed: {error}"
            return [Generation(id=id, finish_reason="error", error=text) for id in sorted(lost)]

    def _deliver(self, done: list[Generation]) -> None:
        with self._changed:
            for generation in done:
                self._held.pop(generation.id, None)
            self._changed.notify_all()
        try:
            self._on_done(done)
        except Exception:
            log.exception("%d generations could not be handed on", len(done))
