"""What the shipped planner makes of many tasks on shared hardware, in virtual time.

usage: python -m benchmarks.simulated [--quick]
"""

from __future__ import annotations

import argparse
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace

from engine.manager.policy import POLICIES, SHIPPED, Policy
from engine.simulation.performance.cost_models import FIRST_MODEL
from engine.simulation.performance.metrics import percentile
from engine.simulation.performance.run import Run, run
from engine.simulation.performance.workload import mixed_tasks

MODES: dict[str, Policy] = {
    **POLICIES,
    "longest_first": replace(SHIPPED, name="longest_first", longest_first=True),
    "joint_passes": replace(SHIPPED, name="joint_passes", steps_per_pass=4),
    "overlap": replace(SHIPPED, name="overlap"),
    "beyond": replace(SHIPPED, name="beyond", longest_first=True, steps_per_pass=4),
}
STALE = ("overlap", "beyond")  # modes in which every task has max_staleness 1


def one(mode: str, num_tasks: int, num_steps: int, group_lag_s: float) -> Run:
    specs = mixed_tasks(num_tasks, num_steps, max_staleness=int(mode in STALE))
    return run(specs, FIRST_MODEL, MODES[mode], group_lag_s)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tasks", type=int, default=32)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--modes", default=",".join(MODES))
    parser.add_argument("--lag", type=float, default=0.5)
    parser.add_argument("--workers", type=int, default=2)
    options = parser.parse_args()
    modes = options.modes.split(",")
    print(
        f"{'mode':20} {'makespan':>9} {'steps/h':>8} {'busy':>6} {'occup.':>6} {'1st p50':>8} "
        f"{'p95':>6} {'bound':>15} {'over':>6} {'fill':>6} {'drain':>6}"
    )
    with ProcessPoolExecutor(options.workers) as pool:
        begun = time.monotonic()
        work = {
            mode: pool.submit(one, mode, options.tasks, options.steps, options.lag)
            for mode in modes
        }
        for mode, future in work.items():
            r = future.result()
            first = r.first_steps_s
            print(
                f"{mode:20} {r.makespan_s:8.0f}s {r.steps_per_hour:8.1f} {r.utilisation.busy:6.3f} "
                f"{r.utilisation.occupancy:6.3f} {percentile(first, 0.5):7.0f}s "
                f"{percentile(first, 0.95):5.0f}s {r.bounds.makespan_s:5.0f}s "
                f"{r.bounds.bottleneck:8} {r.over_bound:6.3f} "
                f"{r.first_fill_s:5.0f}s {r.last_drain_s:5.0f}s  "
                f"({time.monotonic() - begun:.0f} s)",
                flush=True,
            )
    return 0


if __name__ == "__main__":
    sys.exit(main())
