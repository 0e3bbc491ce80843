"""python -m engine.simulation --seeds 200 | --seed 17"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter

from .runner import Report, SimulationFailure, run

PROGRESS_EVERY = 20  # seeds


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m engine.simulation", description=__doc__)
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("--seed", type=int, help="run this seed alone")
    which.add_argument("--seeds", type=int, help="run seeds 0 … SEEDS - 1")
    options = parser.parse_args()
    seeds = [options.seed] if options.seed is not None else list(range(options.seeds))
    began = time.monotonic()
    reports: list[Report] = []
    for seed in seeds:
        try:
            reports.append(run(seed))
        except SimulationFailure as failure:
            print(failure)
            return 1
        if len(reports) % PROGRESS_EVERY == 0 or len(reports) == len(seeds):
            print(f"{len(reports)} of {len(seeds)} seeds, {time.monotonic() - began:.1f} s")
    print(_summary(reports))
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
