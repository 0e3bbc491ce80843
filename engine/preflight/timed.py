"""Graders that note how long they take, and are in all else what they wrap."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..rewards import Grader, Sample, Services, is_pure

MAX_KEPT = 10_000  # of each grader


@dataclass
class Timings:
    """Seconds of each score, by grader's name. Appending is all that threads do here."""

    by_grader: dict[str, list[float]] = field(default_factory=dict)

    def note(self, name: str, seconds: float) -> None:
        kept = self.by_grader.setdefault(name, [])
        if len(kept) < MAX_KEPT:
            kept.append(seconds)


def timed(graders: Sequence[Grader], timings: Timings) -> tuple[Grader, ...]:
    """The graders, each with a clock."""
    return tuple((_Pure if is_pure(one) else _Waiting)(one, timings) for one in graders)


@dataclass(frozen=True)
class _Timed:
    grader: Any
    timings: Timings

    @property
    def name(self) -> str:
        found: str = self.grader.name
        return found

    @property
    def weight(self) -> float:
        found: float = self.grader.weight
        return found


class _Pure(_Timed):
    def score(self, completion: str, row: Mapping[str, Any]) -> float:
        started = time.perf_counter()
        try:
            found: float = self.grader.score(completion, row)
            return found
        finally:
            self.timings.note(self.name, time.perf_counter() - started)


class _Waiting(_Timed):
    async def score_with(self, sample: Sample, services: Services) -> float:
        started = time.perf_counter()
        try:
            found: float = await self.grader.score_with(sample, services)
            return found
        finally:
            self.timings.note(self.name, time.perf_counter() - started)
