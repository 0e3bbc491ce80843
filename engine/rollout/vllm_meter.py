"""What the vLLM engine counts: from its servers' counters, and from the sequences that ended."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Mapping

from ..types import Generation
from .vllm_client import Metrics

SPEED_WINDOW_S = 10.0  # over which tokens per second are counted


class Meter:
    """Written by the event loop only; may be read by any thread."""

    def __init__(self) -> None:
        self.tokens_generated = 0  # of sequences that ended
        self.tokens_prefilled = 0
        self.preemptions = 0
        self.errors = 0
        self._last: dict[object, Metrics] = {}  # by server
        self._speed: deque[tuple[float, int]] = deque()  # (monotonic s, tokens since the last)

    def count(self, generation: Generation) -> None:
        self.tokens_generated += len(generation.ids)
        self.errors += bool(generation.error)

    def read(self, servers: Mapping[object, Metrics]) -> None:
        """The servers that are up; one that started again counts from 0."""
        tokens = 0
        for server, now in servers.items():
            last = self._last.get(server, now)
            if now.tokens_generated < last.tokens_generated:
                last = Metrics()
            tokens += now.tokens_generated - last.tokens_generated
            self.tokens_prefilled += max(0, now.tokens_prefilled - last.tokens_prefilled)
            self.preemptions += max(0, now.preemptions - last.preemptions)
        self._last = dict(servers)
        at = time.monotonic()
        self._speed.append((at, tokens))
        while at - self._speed[0][0] > SPEED_WINDOW_S:
            self._speed.popleft()

    def tokens_per_s(self) -> float:
        """Of the servers, over the last seconds; 0 before the second look."""
        looks = list(self._speed)
        seconds = looks[-1][0] - looks[0][0] if looks else 0.0
        return sum(tokens for _, tokens in looks[1:]) / seconds if seconds > 0 else 0.0
