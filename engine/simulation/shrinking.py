"""A failure made small: the same invariant violated with fewer faults, fewer tasks, in less time.

Each run is deterministic and short, so it is tried what may be left out, until nothing more may.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from .faults import KINDS
from .runner import SimulationFailure
from .scenario import Settings

Attempt = Callable[[Settings], SimulationFailure | None]  # runs it; None if nothing is violated
SHORTEST_S = 1.0  # of faults
MAX_RUNS = 300


def shrink(failure: SimulationFailure, attempt: Attempt) -> SimulationFailure:
    """The smallest failure of the same invariant that leaving out one thing at a time leads to."""
    num_runs = 0
    is_smaller = True
    while is_smaller and num_runs < MAX_RUNS:
        is_smaller = False
        for settings in _smaller(failure.settings):
            num_runs += 1
            found = attempt(settings)
            if found is not None and found.invariant == failure.invariant:
                failure, is_smaller = found, True
                break
    return failure


def _smaller(settings: Settings) -> Iterator[Settings]:
    """What is worth trying next, what would leave out most first."""
    kinds = [kind for kind in KINDS if kind not in settings.without]
    half = len(kinds) // 2
    for together in (kinds, kinds[:half], kinds[half:]):
        if len(together) > 1:
            yield replace(settings, without=settings.without | frozenset(together))
    most = settings.max_tasks or 40
    for max_tasks in sorted({1, 2, most // 2, most - 1}):
        if 0 < max_tasks < most:
            yield replace(settings, max_tasks=max_tasks)
    for share in (0.25, 0.5, 0.8):
        if settings.faults_s * share >= SHORTEST_S:
            yield replace(settings, faults_s=round(settings.faults_s * share, 1))
    for kind in kinds:
        yield replace(settings, without=settings.without | {kind})
