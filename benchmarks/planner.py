"""How long the planner takes to decide, on a snapshot of many tasks with most groups under way.

*Cold* is a plan on views that nobody looked at before, *warm* one on those of the plan before, but
for the steps of a few tasks, as when little has happened.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterable, Sequence
from dataclasses import replace

from benchmarks.report import Row, at_most
from engine import collector
from engine.manager import plan
from engine.manager.policy import SHIPPED, Policy
from engine.manager.snapshot import (
    GroupView,
    Snapshot,
    StepView,
    TaskView,
    TenantView,
    Whereabouts,
    WorkerView,
)
from engine.simulation.performance.metrics import percentile

NOW = 1_000_000.0
GROUPS, GROUP_SIZE = 64, 4
TASKS_EACH = 10  # of a tenant
CHANGED = 10  # tasks between two warm plans
WAITING = 8  # groups of a step that were not sent yet


def measure(num_tasks: int, num_plans: int, policy: Policy = SHIPPED) -> list[Row]:
    """p50 and p99 of cold and of warm plans; the bar is on both p99, 100 ms."""
    rng = random.Random(num_tasks)
    snapshot = snapshot_of(num_tasks, rng)
    cold, warm = [], []
    for _ in range(num_plans):
        snapshot = replace(snapshot, tasks=tuple(_anew(task) for task in snapshot.tasks))
        cold.append(_plan_s(snapshot, policy))
        changed = set(rng.sample(range(num_tasks), min(CHANGED, num_tasks)))
        tasks = (_anew(t) if i in changed else t for i, t in enumerate(snapshot.tasks))
        snapshot = replace(snapshot, tasks=tuple(tasks))
        warm.append(_plan_s(snapshot, policy))
    return [
        *spread(f"plan(), {num_tasks:,} tasks, cold", cold, bar_ms=100),
        *spread(f"plan(), {num_tasks:,} tasks, warm", warm, bar_ms=100),
    ]


def spread(name: str, seconds: Sequence[float], bar_ms: float | None) -> list[Row]:
    """Median, and the 99th percentile against a bar if there is one."""
    p99 = 1000 * percentile(seconds, 0.99)
    return [
        Row(f"{name}: p50", 1000 * percentile(seconds, 0.5), "ms"),
        Row(f"{name}: p99", p99, "ms")
        if bar_ms is None
        else at_most(f"{name}: p99", p99, "ms", bar_ms),
    ]


def snapshot_of(num_tasks: int, rng: random.Random) -> Snapshot:
    """Every task has an open step: some groups finished, most under way, a few not sent yet."""
    num_tenants = max(1, num_tasks // TASKS_EACH)
    worker = WorkerView("w0", "rollout", "rollout", ("base",), NOW - 1e4, NOW - 1, slots=num_tasks)
    others = [
        replace(worker, incarnation=kind, name=kind, kind=kind, slots=0)
        for kind in ("training", "environment")
    ]
    return Snapshot(
        now=NOW,
        tenants=tuple(TenantView(f"tenant {n}") for n in range(num_tenants)),
        tasks=tuple(_task(n, f"tenant {n % num_tenants}", rng) for n in range(num_tasks)),
        workers=(worker, *others),
        queues={"rollout.base": 10, "training.base": 0, "environment": 5},
    )


def _task(number: int, tenant: str, rng: random.Random) -> TaskView:
    finished = rng.randrange(GROUPS // 4)
    groups = tuple(_groups(number, GROUPS - finished, rng))
    step = StepView(3, "open", groups, finished, opened_at=NOW - 100)
    return TaskView(
        id=f"task {number:05}",
        tenant=tenant,
        base_model="base",
        state="running",
        submitted_at=NOW - 5000 + number,
        max_steps=100,
        batch_size=GROUPS,
        group_size=GROUP_SIZE,
        group_cost=2000,
        version=3,
        steps=(step,),
        virtual_time=rng.uniform(0, 10),
        group_s=rng.uniform(0.05, 0.2),
        pass_s=rng.uniform(2, 5),
        rollout_s=rng.uniform(20, 60),
    )


def _groups(task: int, count: int, rng: random.Random) -> Iterable[GroupView]:
    places = ("worker:w0", "queue:rollout.base", "worker:environment")
    for index in range(count):
        if index >= count - WAITING:
            yield GroupView(f"{task}/{index}", index, "waiting")
            continue
        sent = NOW - rng.uniform(2, 60)
        where = tuple(Whereabouts(place, sent + 1, 1) for place in rng.sample(places, 2))
        yield GroupView(f"{task}/{index}", index, "dispatched", 1, 0, "", sent, where)


def _anew(task: TaskView) -> TaskView:
    """With views that hold nothing worked out yet."""
    return replace(task, steps=tuple(replace(step) for step in task.steps))


def _plan_s(snapshot: Snapshot, policy: Policy) -> float:
    """Of the decision alone, without what the collector does once it may."""
    with collector.held_off():
        began = time.perf_counter()
        plan(snapshot, policy)
        return time.perf_counter() - began
