"""Virtual time: a heap of calls to make. Knows nothing of what they do."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import Any

START_S = 1000.0  # 0 means "never" in a snapshot


class Timeline:
    """Makes calls at virtual times; those of one time in the order in which they were asked for."""

    def __init__(self) -> None:
        self.now = START_S
        self._heap: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []
        self._num_asked = 0

    def at(self, time: float, call: Callable[..., None], *args: Any) -> None:
        self._num_asked += 1
        heapq.heappush(self._heap, (max(time, self.now), self._num_asked, call, args))

    def after(self, delay_s: float, call: Callable[..., None], *args: Any) -> None:
        self.at(self.now + delay_s, call, *args)

    def step(self) -> bool:
        """Make the next call; False if there is none left."""
        if not self._heap:
            return False
        self.now, _, call, args = heapq.heappop(self._heap)
        call(*args)
        return True
