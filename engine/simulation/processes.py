"""Many runs in several processes at once, in a module that each of them can import."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from multiprocessing import get_context

from .runner import Report, SimulationFailure, run
from .scenario import Settings

CHUNK = 8  # runs that a process takes at once


def attempt(settings: Settings) -> SimulationFailure | None:
    """The failure of a run; None if nothing is violated."""
    try:
        run(settings)
    except SimulationFailure as failure:
        return failure
    return None


@contextmanager
def reports_of(settings: list[Settings], workers: int) -> Iterator[Iterable[Report | None]]:
    """The reports in order; None for a violation, which the same settings repeat."""
    if workers <= 1 or len(settings) == 1:
        yield map(_report, settings)
        return
    with get_context("spawn").Pool(workers) as pool:
        yield pool.imap(_report, settings, chunksize=CHUNK)


def _report(settings: Settings) -> Report | None:
    try:
        return run(settings)
    except SimulationFailure:
        return None
