"""python -m engine.simulation --seeds 10000 | --seed 17 [--without kill] [--tasks 2] | --points

Runs seeds until one violates an invariant; then makes that run small, and prints what replays it.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections import Counter

from .faults import KINDS
from .points import ENDS, all_points, interfere
from .processes import attempt, reports_of
from .runner import Report, SimulationFailure
from .scenario import FAULTS_S, Settings
from .shrinking import shrink

PROGRESS_EVERY = 100  # seeds


def main() -> int:
    options = _options()
    if options.points:
        return _run_points()
    first = options.seed if options.seed is not None else options.first
    count = 1 if options.seed is not None else options.seeds
    without = frozenset(options.without.split(",")) if options.without else frozenset[str]()
    settings = [
        Settings(seed, without, options.tasks, options.faults_s)
        for seed in range(first, first + count)
    ]
    reports: list[Report] = []
    began = time.monotonic()
    with reports_of(settings, options.workers) as results:
        for asked, report in zip(settings, results, strict=True):
            if report is None:
                return _tell(asked, shrinks=not options.as_it_is)
            reports.append(report)
            if len(reports) % PROGRESS_EVERY == 0 or len(reports) == count:
                seconds = time.monotonic() - began
                print(f"{len(reports)} of {count} seeds, {seconds:.1f} s", flush=True)
    print(_summary(reports))
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m engine.simulation", description=__doc__)
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("--seed", type=int, help="run this seed alone")
    which.add_argument("--seeds", type=int, help="run so many seeds")
    which.add_argument("--points", action="store_true", help="cancel and pause at every event")
    parser.add_argument("--first", type=int, default=0, help="of the seeds")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1, help="processes")
    parser.add_argument("--without", default="", help=f"faults, of {','.join(KINDS)}")
    parser.add_argument("--tasks", type=int, default=0, help="at most")
    parser.add_argument("--faults-s", type=float, default=FAULTS_S, help="seconds with faults")
    parser.add_argument("--as-it-is", action="store_true", help="do not shrink what fails")
    options = parser.parse_args()
    if unknown := set(filter(None, options.without.split(","))) - set(KINDS):
        parser.error(
            f"there is no fault {', '.join(sorted(unknown))}; there are {', '.join(KINDS)}"
        )
    return options


def _tell(settings: Settings, shrinks: bool) -> int:
    """Print a failure, and the smallest one that leads to the same."""
    failure = attempt(settings)
    assert failure is not None, f"seed {settings.seed} is not the same run twice"
    print(failure)
    if shrinks:
        smallest = shrink(failure, attempt)
        if smallest.settings != failure.settings:
            print(f"\nmade small: {smallest}")
    return 1


def _run_points() -> int:
    count = 0
    for act, point in all_points():
        try:
            ended, other = interfere(act, point)
        except SimulationFailure as failure:
            print(f"{act} at event {point}: {failure}")
            return 1
        if ended not in ENDS[act] or other != "succeeded":
            print(f"{act} at event {point}: the tasks are {ended} and {other}")
            return 1
        count += 1
    print(f"no violation with an interference at each of {count} points")
    return 0


def _summary(reports: list[Report]) -> str:
    outcomes: Counter[str] = Counter()
    for report in reports:
        outcomes.update(report.outcomes)
    ends = ", ".join(f"{count} {state}" for state, count in sorted(outcomes.items()))
    return (
        f"no violation in {sum(r.num_events for r in reports):,} events,"
        f" {sum(r.elapsed_s for r in reports) / 3600:.1f} virtual hours: tasks {ends};"
        f" {sum(r.num_versions for r in reports)} versions,"
        f" {sum(r.num_late for r in reports)} late results dropped,"
        f" {sum(r.num_refused for r in reports)} trajectories of wrong adapters refused"
    )


if __name__ == "__main__":
    sys.exit(main())
