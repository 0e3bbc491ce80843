"""Virtual time: a heap of events, and a tail of what happened for the one who reads a failure.

`now` only grows: things happen by it. `wall` is what the clocks of the machines show: it may jump,
and everything that is written down carries it.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from typing import Any

TRACE_LENGTH = 60  # events kept for the report of a violation
TOLD_FIELDS = 4  # of what an event was called with
START_S = 1_000_000.0  # epoch s at which virtual time begins; 0 means "never" in a snapshot


class Clock:
    """Calls functions at virtual times. Events of the same time run in order of scheduling."""

    def __init__(self) -> None:
        self.now = START_S
        self.skew_s = 0.0
        self.num_events = 0
        self._heap: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []
        self._num_scheduled = 0
        self._trace: deque[tuple[float, str, tuple[Any, ...]]] = deque(maxlen=TRACE_LENGTH)

    @property
    def elapsed_s(self) -> float:
        return self.now - START_S

    @property
    def wall(self) -> float:
        """What time the machines believe it is."""
        return self.now + self.skew_s

    def after(self, delay_s: float, call: Callable[..., None], *args: Any) -> None:
        """Call `call(*args)` in `delay_s` virtual seconds."""
        self._num_scheduled += 1
        heapq.heappush(self._heap, (self.now + delay_s, self._num_scheduled, call, args))

    def step(self) -> None:
        """Run the next event. Raises IndexError when none is left."""
        self.now, _, call, args = heapq.heappop(self._heap)
        self.num_events += 1
        self._trace.append((self.now, call.__name__, args))
        call(*args)

    def note(self, what: str, *args: Any) -> None:
        """Add a line to the trace."""
        self._trace.append((self.now, what, args))

    def trace(self) -> list[str]:
        """The last events, oldest first, one line each."""
        return [
            f"{time - START_S:9.3f}  {name.strip('_')}({', '.join(map(_brief, args))})"
            for time, name, args in self._trace
        ]


def _brief(value: Any) -> str:
    """A value in few words; of a plan's commands, those that change more than a sentence."""
    if isinstance(value, list):
        told = [item for item in value if type(item).__name__ != "Explain"]
        return f"[{', '.join(map(_brief, told))}]"
    if isinstance(value, tuple):
        return f"{len(value)} items"
    if is_dataclass(value):
        shown = [getattr(value, field.name) for field in fields(value)[:TOLD_FIELDS]]
        return f"{type(value).__name__}({', '.join(map(_brief, shown))})"
    return str(getattr(value, "__name__", value)).strip("_")
