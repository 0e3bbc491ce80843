"""Virtual time: a heap of events, and a tail of what happened for the one who reads a failure."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable
from typing import Any

TRACE_LENGTH = 60  # events kept for the report of a violation
START_S = 1_000_000.0  # epoch s at which virtual time begins; 0 means "never" in a snapshot


class Clock:
    """Calls functions at virtual times. Events of the same time run in order of scheduling."""

    def __init__(self) -> None:
        self.now = START_S
        self.num_events = 0
        self._heap: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []
        self._num_scheduled = 0
        self._trace: deque[tuple[float, str, tuple[Any, ...]]] = deque(maxlen=TRACE_LENGTH)

    @property
    def elapsed_s(self) -> float:
        return self.now - START_S

    def after(self, delay_s: float, call: Callable[..., None], *args: Any) -> None:
        """Call `call(*args)` in `delay_s` virtual seconds."""
        self._num_scheduled += 1
        heapq.heappush(self._heap, (self.now + delay_s, self._num_scheduled, call, args))

    def step(self) -> None:
        """Run the next event. Raises IndexError when none is left."""
        self.now, _, call, args = heapq.heappop(self._heap)
        self.num_events += 1
        self._trace.append((self.now, call.__name__.strip("_"), args))
        call(*args)

    def note(self, what: str, *args: Any) -> None:
        """Add a line to the trace."""
        self._trace.append((self.now, what, args))

    def trace(self) -> list[str]:
        """The last events, oldest first, one line each."""
        return [
            f"{time - START_S:9.3f}  {name}({', '.join(map(str, args))})"
            for time, name, args in self._trace
        ]
