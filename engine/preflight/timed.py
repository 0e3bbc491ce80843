"""Graders that note how long they take, and are in all else what they are copies of."""

from __future__ import annotations

import copy
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
    """Copies of the graders, each with a clock; of the same types, for who asks what they are."""
    return tuple(_timed(grader, timings) for grader in graders)


def _timed(grader: Any, timings: Timings) -> Any:
    watched = copy.copy(grader)

    def score(completion: str, row: Mapping[str, Any]) -> float:
        started = time.perf_counter()
        try:
            found: float = grader.score(completion, row)
            return found
        finally:
            timings.note(grader.name, time.perf_counter() - started)

    async def score_with(sample: Sample, services: Services) -> float:
        started = time.perf_counter()
        try:
            found: float = await grader.score_with(sample, services)
            return found
        finally:
            timings.note(grader.name, time.perf_counter() - started)

    method = score if is_pure(grader) else score_with
    object.__setattr__(watched, method.__name__, method)  # it is frozen; no field is touched
    return watched
