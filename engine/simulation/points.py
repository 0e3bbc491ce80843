"""Every point of one small run at which a person may cancel or pause, each tried in turn.

Chance finds the common moments; this finds the rare ones, such as the events between a plan and
the transaction that carries it out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from engine.manager import plan as shipped_plan
from engine.manager.policy import SHIPPED

from .checker import Violation
from .cluster import Cluster, Plan
from .faults import CALM, Rates
from .invariants import checkers
from .rows import TaskRow, TenantRow
from .runner import SimulationFailure, Watch
from .scenario import FAIR_ROLES, Scenario, Settings
from .store import Store

PAUSE_S = 5.0
CALM_S = 20.0  # then all that is paused goes on anyway
TASKS = ("task0", "task1")  # the first is interfered with; the second must not notice

Act = Callable[[Cluster], None]


def cancel(cluster: Cluster) -> None:
    cluster.store.move_task(TASKS[0], "cancelled", ["queued", "running", "paused"])
    cluster.ring()


def pause(cluster: Cluster) -> None:
    """Pause, and resume a while later."""
    if cluster.store.move_task(TASKS[0], "paused", ["running"]):
        cluster.ring()
        cluster.clock.after(PAUSE_S, resume, cluster)


def resume(cluster: Cluster) -> None:
    cluster.store.move_task(TASKS[0], "running", ["paused"])
    cluster.ring()


ACTS: dict[str, Act] = {"cancel": cancel, "pause": pause}
ENDS = {"cancel": {"cancelled", "succeeded"}, "pause": {"succeeded"}}  # of the first task


def num_points(plan: Plan = shipped_plan) -> int:
    """Events of the run that nobody interferes with."""
    cluster = _cluster(plan)
    Watch(cluster, []).follow(CALM_S)
    return cluster.clock.num_events


def interfere(act: str, point: int, plan: Plan = shipped_plan) -> tuple[str, ...]:
    """Run to its `point`-th event, act, and on to the end. Returns how the tasks ended.

    Raises: SimulationFailure.
    """
    cluster = _cluster(plan)
    watch = Watch(cluster, checkers(cluster))
    try:
        for _ in range(point):
            watch.step()
        ACTS[act](cluster)
        watch.follow(CALM_S)
    except Violation as violation:
        raise SimulationFailure(Settings(0), violation, cluster.clock.trace()) from None
    return tuple(cluster.store.tasks[task].state for task in TASKS)


def all_points(plan: Plan = shipped_plan) -> Iterator[tuple[str, int]]:
    for act in ACTS:
        for point in range(num_points(plan)):
            yield act, point


def _cluster(plan: Plan) -> Cluster:
    """Two tasks of two tenants, one with turns and overlapping steps, and no faults."""
    scenario = Scenario(SHIPPED, CALM, Rates(), FAIR_ROLES, ("alpha",), len(TASKS), 0)
    cluster = Cluster(0, scenario, plan, Store())
    cluster.start()
    for number, task in enumerate(TASKS):
        tenant = f"tenant{number}"
        cluster.store.tenants[tenant] = TenantRow(tenant)
        cluster.store.submit(
            TaskRow(
                id=task,
                tenant=tenant,
                base_model="alpha",
                submitted_at=cluster.clock.wall,
                max_steps=2,
                batch_size=2,
                group_size=2,
                max_turns=2 - number,
                max_staleness=1 - number,
            )
        )
    return cluster
