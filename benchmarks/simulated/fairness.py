"""Does every tenant get what its weight says, however long its answers and many its tasks?

Service is rollout plus training device-seconds, counted over a window in which each tenant has
work ready at every instant, after a warm-up: eight tasks each that never end, or always more tasks
queued. What a task's first step takes nobody knows beforehand, so tenants whose tasks have but one
are those that charges are settled for.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

from benchmarks.report import Row, at_least, at_most, missing
from engine.manager.policy import SHIPPED
from engine.simulation.performance.cluster import Cluster
from engine.simulation.performance.cost_models import FIRST_MODEL, CostModel
from engine.simulation.performance.metrics import jain
from engine.simulation.performance.rows import Tenant
from engine.simulation.performance.timeline import START_S
from engine.simulation.performance.workload import GSM, Kind, LogNormal, TaskSpec

ENDLESS = 10_000  # steps
SHORT = Kind("short", LogNormal(3.0, 0.3, 5, 60))  # 20 tokens
LONG = Kind("long", LogNormal(7.6, 0.3, 500, 6000))  # 2,000
KINDS = {kind.name: kind for kind in (SHORT, LONG, GSM)}


def _model(name: str, pass_s: float, slots: int) -> CostModel:
    return replace(
        FIRST_MODEL,
        name=name,
        engine=replace(FIRST_MODEL.engine, slots=slots),
        pass_s=dict.fromkeys(KINDS, pass_s),
    )


# Passes that no rollout keeps up with, and an engine that no trainer keeps up with
TRAINER_BOUND = _model("trainer bound", pass_s=15.0, slots=8192)
ROLLOUT_BOUND = _model("rollout bound", pass_s=0.05, slots=256)


@dataclass(frozen=True)
class Side:
    """What a tenant has to do."""

    kind: Kind
    num_tasks: int = 8
    num_steps: int = ENDLESS
    batch_size: int = 64
    max_tasks: int = 0  # at once; 0: all

    def tasks(self, tenant: str) -> list[TaskSpec]:
        found = tasks_of(tenant, self.kind, self.num_tasks, self.num_steps)
        return [replace(spec, batch_size=self.batch_size) for spec in found]


@dataclass(frozen=True)
class Contest:
    """Two tenants."""

    name: str
    model: CostModel
    window_s: float  # after as long a warm-up as a quarter of it
    sides: tuple[Side, Side]
    weights: tuple[float, float] = (1.0, 1.0)


# One step, then the next task: eight or two at once, and always more queued
PASSING = Side(LONG, num_tasks=1000, num_steps=1, batch_size=16, max_tasks=8)
LARGE_PASSING = Side(GSM, num_tasks=400, num_steps=1, batch_size=256, max_tasks=2)
MODELS = ((TRAINER_BOUND, 2400.0), (ROLLOUT_BOUND, 800.0))
CONTESTS = tuple(
    Contest(f"{name}, {model.name}", model, window_s, sides, weights)
    # Passes are few and large: shares are seen once there were some hundred.
    for model, window_s in MODELS
    for name, sides, weights in (
        ("answers 100 to 1", (Side(LONG), Side(SHORT)), (1.0, 1.0)),
        ("weights 3 to 1", (Side(GSM), Side(GSM)), (3.0, 1.0)),
        ("weights 3 to 1, answers 100 to 1", (Side(LONG), Side(SHORT)), (3.0, 1.0)),
        ("tasks of one long step", (PASSING, Side(GSM)), (1.0, 1.0)),
        ("batches of 256 and 16", (LARGE_PASSING, Side(GSM, batch_size=16)), (1.0, 1.0)),
    )
)


@dataclass(frozen=True)
class Shares:
    """Device-seconds of each tenant in the window."""

    seconds: tuple[float, float]
    weights: tuple[float, float]

    @property
    def jain(self) -> float:
        return jain([s / w for s, w in zip(self.seconds, self.weights, strict=True)])

    @property
    def ratio(self) -> float:
        return self.seconds[0] / self.seconds[1]


def tasks_of(tenant: str, kind: Kind, count: int, num_steps: int = ENDLESS) -> list[TaskSpec]:
    return [TaskSpec(f"{tenant}-{n:04d}", kind, num_steps, tenant=tenant) for n in range(count)]


def hold(contest: Contest) -> Shares:
    window_s = contest.window_s
    warm_up_s = window_s / 4
    names = ("first", "second")
    specs = [
        spec for name, side in zip(names, contest.sides, strict=True) for spec in side.tasks(name)
    ]
    tenants = [
        Tenant(name, weight=weight, max_concurrent_tasks=side.max_tasks)
        for name, weight, side in zip(names, contest.weights, contest.sides, strict=True)
    ]
    cluster = Cluster(specs, contest.model, SHIPPED, tenants).run(warm_up_s + window_s + 5)
    before = _at(cluster, START_S + warm_up_s)
    after = _at(cluster, START_S + warm_up_s + window_s)
    first, second = (after[name] - before[name] for name in names)
    return Shares((first, second), contest.weights)


def _at(cluster: Cluster, time: float) -> dict[str, float]:
    """The ledger's entry at that time, or the next one."""
    return next(seconds for at, seconds in cluster.ledger if at >= time)


@dataclass(frozen=True)
class Flood:
    """How long the first step of a tenant's only task takes, alone and behind another's flood."""

    alone_s: float
    flooded_s: float

    @property
    def delay_in_steps(self) -> float:
        return (self.flooded_s - self.alone_s) / self.alone_s


def flood(num_tasks: int, give_up_s: float = 3600.0) -> Flood:
    """The other tenant submits all its tasks at the start; ours comes a minute later."""
    small = {"batch_size": 16, "group_size": 4}
    ours = replace(TaskSpec("ours", GSM, 1, tenant="ours"), submitted_s=60.0, **small)
    others = [replace(spec, **small) for spec in tasks_of("flood", GSM, num_tasks)]
    return Flood(*(_first_commit_s(specs, give_up_s) for specs in ([ours], [*others, ours])))


def _first_commit_s(specs: Sequence[TaskSpec], give_up_s: float) -> float:
    """Of the task called ours, after its submission."""
    cluster = Cluster(specs, FIRST_MODEL, SHIPPED)
    cluster.run(give_up_s, until=lambda: any(s.task == "ours" for s in cluster.step_times))
    ours = next(step for step in cluster.step_times if step.task == "ours")
    return ours.committed_at - START_S - 60.0


def jobs(quick: bool) -> dict[str, partial[Shares] | partial[Flood]]:
    """quick: without the contests, of which a short window tells nothing."""
    contests = {} if quick else {c.name: partial(hold, c) for c in CONTESTS}
    return {"flood": partial(flood, 100 if quick else 1000), **contests}


def unmeasured_rows() -> list[Row]:
    """Of the contests, where they are not held."""
    return [
        missing(f"fairness, {contest.name}: {name}", unit)
        for contest in CONTESTS
        for name, unit in (
            [("Jain", "of 1")] if contest.weights == (1.0, 1.0) else [("ratio", "to 1")]
        )
    ]


def rows(results: dict[str, Shares | Flood]) -> list[Row]:
    found = []
    for name, shares in results.items():
        if isinstance(shares, Flood):
            found.append(Row("flood: first step alone", shares.alone_s, "s"))
            found.append(Row("flood: first step behind it", shares.flooded_s, "s"))
            found.append(at_most("flood: delay", shares.delay_in_steps, "steps", 1.0))
        elif shares.weights == (1.0, 1.0):
            found.append(at_least(f"fairness, {name}: Jain", shares.jain, "of 1", 0.95))
        else:
            error = 100 * abs(shares.ratio / (shares.weights[0] / shares.weights[1]) - 1)
            found.append(Row(f"fairness, {name}: ratio", shares.ratio, "to 1"))
            found.append(at_most(f"fairness, {name}: ratio off by", error, "%", 10))
    return found
