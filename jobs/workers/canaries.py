"""Canaries on a rollout worker: does the engine really apply the adapter that it says it does?

With the first group of a policy version that comes here, and at most once a minute after that,
because the adapter may have left the engine and been loaded anew, the version's canary goes into
the engine as one more sequence, through the same batches as everybody's. What the engine's
log-probs are compared with lies beside the adapter, written by the trainer. Version 0 has no
canary: no trainer made it, and it changes nothing. A check that fails for want of anything is
logged and tried again with a later group; it never harms a group.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from django.db import close_old_connections

from engine.adapters.canary import Canary, compare, read_canary
from engine.errors import MarlaasError
from engine.types import AdapterRef, Generation, GenerationRequest, SamplingParams
from jobs.services.mismatch import record_canary

CHECK_AGAIN_S = 60.0
MAX_UNDER_WAY = 1000
PREFIX = "canary:"  # of a request's id; trajectories' begin with a group's

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class _Check:
    adapter: AdapterRef
    canary: Canary


class Canaries:
    """The checks of this process. Thread-safe; what it remembers is bounded."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._looked_at: dict[str, float] = {}  # monotonic s, by adapter's name
        self._under_way: dict[str, _Check] = {}  # by request's id, oldest first
        self._num_asked = 0

    def requests(self, adapter: AdapterRef) -> list[GenerationRequest]:
        """What is to go into the engine beside a group of this adapter: one sequence or none."""
        with self._lock:
            if not self._is_due(adapter.name):
                return []
            canary = _canary_of(adapter)
            if canary is None:
                return []
            self._num_asked += 1
            request_id = f"{PREFIX}{adapter.name}:{self._num_asked}"
            self._under_way[request_id] = _Check(adapter, canary)
            if len(self._under_way) > MAX_UNDER_WAY:  # no answer came, as after a refused `submit`
                del self._under_way[next(iter(self._under_way))]
        return [
            GenerationRequest(
                id=request_id,
                adapter=adapter,
                ids=canary.ids,
                sampling=SamplingParams(max_new_tokens=1),
                seed=0,
                needs_prompt_logprobs=True,
            )
        ]

    def _is_due(self, name: str) -> bool:
        """Whether this version was not looked at lately; it is now."""
        now = self._clock()
        lately = {n: at for n, at in self._looked_at.items() if now - at < CHECK_AGAIN_S}
        self._looked_at = {name: now, **lately}
        return name not in lately

    def take(self, generation: Generation) -> bool:
        """Whether it is a canary's; then it was compared and recorded. Never raises."""
        if not generation.id.startswith(PREFIX):
            return False
        with self._lock:
            check = self._under_way.pop(generation.id, None)
        if check:
            try:
                _record(check, generation)
            except MarlaasError as error:
                log.warning("%s not compared: %s", generation.id, error)
            except Exception:
                log.exception("%s not recorded", generation.id)
            finally:
                close_old_connections()
        return True


def _canary_of(adapter: AdapterRef) -> Canary | None:
    try:
        return read_canary(adapter.path)
    except MarlaasError as error:
        log.warning("%s cannot be checked: %s", adapter.name, error)
        return None


def _record(check: _Check, generation: Generation) -> None:
    """Raises: RolloutError if the engine gave no log-probs to compare."""
    if generation.error or generation.finish_reason == "cancelled":
        log.warning("%s ended without log-probs: %s", generation.id, generation.error)
        return
    found = compare(check.canary, generation.prompt_logprobs)
    log.info("%s: %s", generation.id, found)
    adapter = check.adapter
    record_canary(adapter.task, adapter.version, adapter.digest, found)
