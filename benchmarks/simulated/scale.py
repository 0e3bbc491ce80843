"""Many more tasks on as many more accelerators: a thousand tasks on 1,024, and the trend beyond.

A cell is 64 accelerators, one engine and one trainer as in the first model; every size has as many
tasks a cell. One planner sees them all. Plans come at most so often that their own time matters
little to the run; how long one takes is measured and reported.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from functools import partial

from benchmarks.report import Row
from engine.manager import plan
from engine.manager.policy import SHIPPED, Policy
from engine.manager.snapshot import Command, Snapshot
from engine.simulation.performance.cluster import Cluster
from engine.simulation.performance.cost_models import FIRST_MODEL
from engine.simulation.performance.run import outcome
from engine.simulation.performance.summary import Summary, summarise
from engine.simulation.performance.workload import mixed_tasks

SIZES = ((62, 1), (250, 4), (1000, 16), (2000, 32))  # tasks, cells
DEVICES_PER_CELL = 64
PROMPTS, SAMPLES = 16, 16  # as many trajectories a step as 64 x 4, in fewer groups to plan
LAG_S, INTERVAL_S = 1.0, 0.25  # of plans


@dataclass(frozen=True)
class Sized:
    summary: Summary
    plan_ms: float  # mean, of this machine's time


@dataclass
class TimedPlanner:
    """The planner, with a stopwatch."""

    spent_s: float = 0.0
    count: int = 0

    def __call__(self, snapshot: Snapshot, policy: Policy) -> list[Command]:
        began = time.perf_counter()
        commands = plan(snapshot, policy)
        self.spent_s += time.perf_counter() - began
        self.count += 1
        return commands


def solve(num_tasks: int, num_cells: int, num_steps: int) -> Sized:
    specs = mixed_tasks(num_tasks, num_steps, batch_size=PROMPTS, group_size=SAMPLES)
    model = replace(
        FIRST_MODEL, name=f"{num_cells} cells", num_engines=num_cells, num_trainers=num_cells
    )
    planner = TimedPlanner()
    cluster = Cluster(
        specs, model, SHIPPED, group_lag_s=LAG_S, interval_s=INTERVAL_S, planner=planner
    )
    summary = summarise(outcome(cluster.run(), specs))
    return Sized(summary, 1000 * planner.spent_s / planner.count)


def jobs(num_steps: int, quick: bool) -> dict[tuple[int, int], partial[Sized]]:
    sizes = ((15, 1), (60, 4)) if quick else SIZES
    return {size: partial(solve, *size, num_steps) for size in reversed(sizes)}


def table(results: dict[tuple[int, int], Sized]) -> None:
    print("\nscale: the first model's cell of 64 accelerators, many times; shipped policy")
    print(
        f"{'tasks':>6} {'accelerators':>13} {'makespan':>10} {'steps/h':>9} {'busy':>6} "
        f"{'occup.':>7} {'over':>6} {'1st step p50, p95':>18} {'plan':>9}"
    )
    for (tasks, cells), one in sorted(results.items()):
        s = one.summary
        print(
            f"{tasks:6} {DEVICES_PER_CELL * cells:13,} {s.makespan_s:8.0f} s "
            f"{s.steps_per_hour:9,.0f} {s.busy:6.3f} {s.occupancy:7.3f} {s.over_bound:6.3f} "
            f"{s.first_step_p50_s:8.0f},{s.first_step_p95_s:6.0f} s {one.plan_ms:6.1f} ms"
        )


def rows(results: dict[tuple[int, int], Sized]) -> list[Row]:
    found = []
    one_cell = min(results.items())[1].summary.steps_per_hour
    for (tasks, cells), one in sorted(results.items()):
        name = f"{tasks:,} tasks on {DEVICES_PER_CELL * cells:,}"
        scaling = one.summary.steps_per_hour / cells / one_cell
        found += [
            Row(f"{name}: steps per hour a cell, by one cell's", scaling, "of 1"),
            Row(f"{name}: steps per hour", one.summary.steps_per_hour, "steps/h"),
            Row(f"{name}: occupancy-weighted utilisation", one.summary.occupancy, "of 1"),
            Row(f"{name}: makespan by the least time", one.summary.over_bound, "times"),
            Row(f"{name}: mean plan", one.plan_ms, "ms"),
        ]
    return found
