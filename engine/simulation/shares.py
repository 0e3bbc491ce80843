"""Who is served, over longer than one plan: shares by weight, and nobody passed for long.

Both are checked by what was done, not by what was decided: service is counted here.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import combinations

from engine.manager.snapshot import DispatchGroup, Snapshot, TaskView, TenantView

from .checker import Checker
from .cluster import Cluster
from .facts import Fact, PassTaken, Planned, Settled

ROUNDING = 1e-6


@dataclass
class _Lead:
    """How far one flow is before another, since both have had work all the time."""

    allowed: float  # how far corrections have driven them apart, which nobody decided
    now: float = 0.0
    least: float = 0.0
    most: float = 0.0

    def move(self, by: float) -> float:
        """Returns how far the two have drifted apart at most."""
        self.now += by
        self.least, self.most = min(self.least, self.now), max(self.most, self.now)
        return self.most - self.least

    def correct(self, by: float) -> None:
        """What one was charged is corrected: they may drift as much further, if that is apart."""
        before = self.most - self.least
        self.allowed += self.move(by) - before


class Shares(Checker):
    """Tenants that both have groups waiting are served by weight, and tasks of a tenant alike.

    Whatever the window, their service for their weight differs by no more than one group of each
    (Goyal, Vin and Cheng, theorem 1). That holds where nothing but the order decides who goes, so
    in runs that are made so. What a group costs is only learned, so the dearest trajectory that
    was seen tells what one may cost. Corrections of what was charged count as service, and where
    they drive two apart, or had before both had work, these may differ by as much more.
    """

    name = "fair shares"
    sees = (Planned, Settled)

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(cluster)
        self._leads: dict[tuple[str, str], _Lead] = {}
        self._settled: dict[str, float] = defaultdict(float)  # since the last plan, by task
        self._dearest = 0.0  # device-seconds of a trajectory
        self._largest: dict[str, int] = defaultdict(int)  # trajectories of a group, by tenant

    def see(self, fact: Fact) -> None:
        if not self.cluster.scenario.is_fair:
            return
        if isinstance(fact, Settled):
            self._settled[fact.task] += fact.owed_s
        elif isinstance(fact, Planned):
            self._judge(fact)

    def _judge(self, fact: Planned) -> None:
        sent = [c for c in fact.commands if isinstance(c, DispatchGroup)]
        self._learn(fact.snapshot, sent)
        tenant_of = {task.id: task.tenant for task in self.cluster.store.tasks.values()}
        served: dict[str, float] = defaultdict(float)
        settled, self._settled = self._settled, defaultdict(float)
        for task_id, owed_s in tuple(settled.items()):
            settled[tenant_of[task_id]] += owed_s
        for command in sent:
            served[command.task] += command.cost
            served[tenant_of[command.task]] += command.cost
        tasks: dict[str, list[_Flow]] = defaultdict(list)  # that wait, by tenant
        for task in _waiting(fact.snapshot, {command.group for command in sent}):
            flow = _Flow(task.id, task.group_size, served[task.id], settled[task.id])
            tasks[task.tenant].append(replace(flow, virtual_time=task.virtual_time))
        tenants = [
            _Flow(t.id, self._largest[t.id], served[t.id], settled[t.id]).by(t)
            for t in fact.snapshot.tenants
            if t.id in tasks
        ]
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
                lead = before.get((one.id, other.id))
                if lead is None:
                    lead = _Lead(abs(one.virtual_time - other.virtual_time))
                else:
                    lead.correct(one.settled - other.settled)
                self._leads[one.id, other.id] = lead
                drift = lead.move(one.served - other.served)
                bound = self._dearest * (one.largest + other.largest) + lead.allowed
                what = f"{drift:.3f} s of service, {bound:.3f} are allowed"
                self.require(drift <= bound + ROUNDING, f"{one.id} and {other.id} differ by {what}")


@dataclass(frozen=True)
class _Flow:
    """One that has groups waiting, in one plan."""

    id: str
    largest: float  # trajectories of a group of it, for its weight
    served: float  # device-seconds by this plan, for its weight
    settled: float  # and corrections since the plan before
    virtual_time: float = 0.0  # before this plan

    def by(self, tenant: TenantView) -> _Flow:
        """What is the tenant's, for its weight."""
        largest, served = self.largest / tenant.weight, self.served / tenant.weight
        settled = self.settled / tenant.weight
        return _Flow(self.id, largest, served, settled, tenant.virtual_time)


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
