"""Who is served, over longer than one plan: shares by weight, and nobody passed for long.

Both are checked by what was done, not by what was decided: service is counted here.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import combinations

from engine.manager.snapshot import DispatchGroup, Snapshot, TaskView

from .checker import Checker
from .cluster import Cluster
from .facts import Fact, PassTaken, Planned

ROUNDING = 1e-6


@dataclass
class _Lead:
    """How far one flow is before another, since both have had work all the time."""

    now: float = 0.0
    least: float = 0.0
    most: float = 0.0

    def move(self, by: float) -> float:
        """Returns how far the two have drifted apart at most."""
        self.now += by
        self.least, self.most = min(self.least, self.now), max(self.most, self.now)
        return self.most - self.least


class Shares(Checker):
    """Tenants that both have groups waiting are served by weight, and tasks of a tenant alike.

    Whatever the window, their service for their weight differs by no more than one group of each
    (Goyal, Vin and Cheng, theorem 1). That holds where nothing but the order decides who goes, so
    in runs that are made so. What a group costs is only learned, so the dearest trajectory that
    was seen tells what one may cost.
    """

    name = "fair shares"
    sees = (Planned,)

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(cluster)
        self._leads: dict[tuple[str, str], _Lead] = {}
        self._dearest = 0.0  # device-seconds of a trajectory
        self._largest: dict[str, int] = defaultdict(int)  # trajectories of a group, by tenant

    def see(self, fact: Fact) -> None:
        if not self.cluster.scenario.is_fair or not isinstance(fact, Planned):
            return
        sent = [c for c in fact.commands if isinstance(c, DispatchGroup)]
        self._learn(fact.snapshot, sent)
        tenant_of = {task.id: task.tenant for task in fact.snapshot.tasks}
        served: dict[str, float] = defaultdict(float)
        for command in sent:
            served[command.task] += command.cost
            served[tenant_of[command.task]] += command.cost
        tasks: dict[str, list[_Flow]] = defaultdict(list)  # that wait, by tenant
        for task in _waiting(fact.snapshot, {command.group for command in sent}):
            tasks[task.tenant].append(_Flow(task.id, task.group_size, served[task.id]))
        weights = {tenant.id: tenant.weight for tenant in fact.snapshot.tenants}
        tenants = [_Flow(t, self._largest[t] / weights[t], served[t] / weights[t]) for t in tasks]
        self._compare([tenants, *tasks.values()])

    def _learn(self, snapshot: Snapshot, sent: list[DispatchGroup]) -> None:
        """What a group may cost at most."""
        sizes = {task.id: task.group_size for task in snapshot.tasks}
        for command in sent:
            self.require(command.cost > 0, f"{command.group} cost {command.cost}")
            self._dearest = max(self._dearest, command.cost / sizes[command.task])
        for task in snapshot.tasks:
            self._largest[task.tenant] = max(self._largest[task.tenant], task.group_size)

    def _compare(self, lines: Iterable[list[_Flow]]) -> None:
        """lines: flows that wait, of those that are served alike."""
        before, self._leads = self._leads, {}
        for line in lines:
            for one, other in combinations(line, 2):
                lead = before.get((one.id, other.id)) or _Lead()
                self._leads[one.id, other.id] = lead
                drift = lead.move(one.served - other.served)
                bound = self._dearest * (one.largest + other.largest)
                what = f"{drift:.3f} s of service, {bound:.3f} are allowed"
                self.require(drift <= bound + ROUNDING, f"{one.id} and {other.id} differ by {what}")


@dataclass(frozen=True)
class _Flow:
    """One that has groups waiting, in one plan."""

    id: str
    largest: float  # trajectories of a group of it, for its weight
    served: float  # device-seconds by this plan, for its weight


def _waiting(snapshot: Snapshot, sent: set[str]) -> list[TaskView]:
    """Tasks that have groups left to send, by id."""
    found = (
        task
        for task in snapshot.tasks
        if task.state == "running"
        and any(group.id not in sent for step in task.steps for group in step.waiting)
    )
    return sorted(found, key=lambda task: (task.tenant, task.id))


class NoStarvation(Checker):
    """Once all is well, no ready step is passed by more younger ones than trainers take at once."""

    name = "no starvation"
    sees = (PassTaken,)

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(cluster)
        self._passed: Counter[tuple[str, int]] = Counter()  # by step, how often

    def see(self, fact: Fact) -> None:
        has_others = not self.cluster.scenario.policy.max_tasks
        if isinstance(fact, PassTaken) and self.cluster.is_healed and has_others:
            self._count(fact)

    def _count(self, taken: PassTaken) -> None:
        store, scenario = self.cluster.store, self.cluster.scenario
        base_model = store.tasks[taken.task].base_model
        trainers = [r for r in scenario.roles if r.kind == "training"]
        allowed = 2 * len(trainers) * scenario.policy.steps_per_pass
        for task in store.tasks.values():
            oldest = next(iter(task.live_steps), None)
            if task.is_over or task.base_model != base_model or oldest is None:
                continue
            if oldest.state == "ready" and oldest.ready_order < taken.ready_order:
                self._passed[task.id, oldest.number] += 1
                times = self._passed[task.id, oldest.number]
                what = f"step {oldest.number} of {task.id} was passed by {times} younger ones"
                self.require(times <= allowed, what)
