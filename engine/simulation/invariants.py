"""The invariants of docs/architecture.md as checkers, one for each, run after every event.

Each keeps its own memory of what it was told and counts for itself; none asks the planner. The
sixth invariant (no tenant reads another's) is held by the isolation tests; the eighth has one for
each thing that is promised. One limit: which leases have run out, checkers 3 and 8 learn from
`engine.manager.leases`, as only 4 is about that.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from engine.manager.leases import group_loss, live_workers, pass_loss
from engine.manager.snapshot import (
    DispatchGroup,
    DispatchTraining,
    GroupView,
    Snapshot,
    TaskView,
    WorkerView,
)

from .cluster import Cluster
from .facts import (
    Committed,
    Fact,
    GroupDispatched,
    GroupFinished,
    Planned,
    Sample,
    StepOpened,
    TaskEnded,
)
from .store import REPORTED_ERROR

IN_FLIGHT_PER_SLOT = 1.5
EPISODES_PER_SLOT = 8
MAX_ERRORS = 3
STUCK_LIMIT_S = 700.0  # the longest lease is 600 s in a queue; then room must be found


class Violation(Exception):
    """An invariant did not hold. `invariant`: the name of the checker that saw it."""

    def __init__(self, invariant: str, what: str) -> None:
        self.invariant, self.what = invariant, what
        super().__init__(f"{invariant}: {what}")


class Checker:
    """One invariant. `see` gets each new fact, `look` runs once after each event."""

    name = ""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster

    def see(self, fact: Fact) -> None:
        """Check one fact, and remember what later ones must agree with."""

    def look(self) -> None:
        """Check the present state."""

    def require(self, holds: bool, what: str) -> None:
        if not holds:
            raise Violation(self.name, what)


class OnPolicy(Checker):
    """1. A pass trains on exactly the groups of its step, each by a version that lies behind by no
    more than the task allows: by default, by the step's own."""

    name = "1 on-policy"

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(cluster)
        self._digests: dict[tuple[str, int], str] = {}

    def see(self, fact: Fact) -> None:
        if not isinstance(fact, Committed):
            return
        self._digests[fact.task, fact.number] = fact.digest
        if fact.number == 0:
            return
        task, number = self.cluster.store.tasks[fact.task], fact.number - 1
        what = f"version {fact.number} of {fact.task} was trained"
        groups = sorted({sample.group for samples in fact.batch for sample in samples})
        wanted = [f"{task.id}.{number}.{index}" for index in range(task.batch_size)]
        self.require(groups == sorted(wanted), f"{what} on {groups}, not on {wanted}")
        for samples in fact.batch:
            indexes = [sample.index for sample in samples]
            self.require(indexes == list(range(task.group_size)), f"{what} on {indexes} of a group")
        digests = {sample.digest for samples in fact.batch for sample in samples}
        oldest = max(0, number - task.max_staleness)
        allowed = {self._digests.get((fact.task, n)) for n in range(oldest, number + 1)}
        self.require(digests <= allowed, f"{what} on trajectories of {sorted(digests)}")


class OneStep(Checker):
    """2. At most 1 + max_staleness open steps a task; versions are consecutive, committed once."""

    name = "2 one step, consecutive versions"

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(cluster)
        self._latest: dict[str, int] = {}

    def see(self, fact: Fact) -> None:
        if isinstance(fact, Committed):
            latest = self._latest.get(fact.task, -1)
            what = f"{fact.task} committed version {fact.number} after {latest}"
            self.require(fact.number == latest + 1, what)
            self._latest[fact.task] = fact.number
        elif isinstance(fact, StepOpened):
            task = self.cluster.store.tasks[fact.task]
            steps = [step.number for step in task.live_steps]
            what = f"{fact.task} has the open steps {steps}"
            self.require(len(steps) <= 1 + task.max_staleness, what)
            latest = self._latest.get(fact.task, -1)
            what = f"{fact.task} opened step {fact.number} at version {latest}"
            self.require(fact.number == latest + len(steps) - 1, what)


class OnePass(Checker):
    """3. One pass at a time on a trainer, taken from the FIFO of ready steps in order."""

    name = "3 one pass at a time, in order"

    def see(self, fact: Fact) -> None:
        if isinstance(fact, Planned):
            sent = [c for c in fact.commands if isinstance(c, DispatchTraining)]
            if sent:
                self._check_number(fact.snapshot, {command.task for command in sent})
                self._check_order(fact.snapshot, {command.task for command in sent})

    def look(self) -> None:
        for worker in self.cluster.workers.values():
            if worker.role.kind == "training":
                self.require(len(worker.held) <= 1, f"{worker} has {len(worker.held)} passes")

    def _check_number(self, snapshot: Snapshot, sent: set[str]) -> None:
        live = live_workers(snapshot)
        trainers = [worker for worker in live.values() if worker.kind == "training"]
        holders = {
            step.holder for task in snapshot.tasks for step in task.steps if step.holder in live
        }
        num_free = sum(worker.incarnation not in holders for worker in trainers)
        self.require(len(sent) <= num_free, f"{len(sent)} passes for {num_free} free trainers")
        for base_model in {task.base_model for task in snapshot.tasks if task.id in sent}:
            num_trainers = sum(base_model in worker.base_models for worker in trainers)
            passes = [
                task.id
                for task in snapshot.tasks
                if task.base_model == base_model
                and (task.id in sent or self._is_under_way(task, snapshot))
            ]
            what = f"{num_trainers} trainers of {base_model} were given {passes}"
            self.require(len(passes) <= num_trainers, what)

    def _is_under_way(self, task: TaskView, snapshot: Snapshot) -> bool:
        live = live_workers(snapshot)
        return any(
            step.state == "training" and not pass_loss(step, task.base_model, snapshot, live)
            for step in task.steps
        )

    def _check_order(self, snapshot: Snapshot, sent: set[str]) -> None:
        """No ready step goes while an earlier one of its base model, free to go, stays."""
        suspended = {tenant.id for tenant in snapshot.tenants if tenant.is_suspended}
        places = [
            (task.base_model, task.steps[0].ready_order, task.id in sent)
            for task in snapshot.tasks
            if task.steps
            and task.steps[0].state == "ready"
            and task.state == "running"
            and task.tenant not in suspended
            and all(step.errors < MAX_ERRORS for step in task.steps)
        ]
        for base_model, order, is_sent in places:
            earlier = [o for b, o, s in places if b == base_model and o < order and not s]
            self.require(not is_sent or not earlier, f"place {order} went before {earlier}")


class Leases(Checker):
    """4. A dispatched group finishes, or goes again with a higher attempt; late results are out."""

    name = "4 leases and attempts"

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(cluster)
        self._attempts: Counter[str] = Counter()
        self._stuck_since: dict[tuple[str, int], float] = {}

    def see(self, fact: Fact) -> None:
        if isinstance(fact, GroupDispatched):
            what = f"{fact.group}: attempt {fact.attempt} after {self._attempts[fact.group]}"
            self.require(fact.attempt == self._attempts[fact.group] + 1, what)
            self._attempts[fact.group] = fact.attempt
        elif isinstance(fact, GroupFinished):
            attempts = {sample.attempt for sample in fact.samples}
            what = f"{fact.group}: results of {attempts} at attempt {self._attempts[fact.group]}"
            self.require(attempts == {self._attempts[fact.group]}, what)
        elif isinstance(fact, Planned):
            self._check_stuck()

    def _check_stuck(self) -> None:
        """No attempt of a task that may go on stays neither finished nor replaced for long."""
        now = self.cluster.clock.now
        self._stuck_since = {key: self._stuck_since.get(key, now) for key in self._flying()}
        for (group, attempt), since in self._stuck_since.items():
            what = f"attempt {attempt} of {group} neither ended nor was replaced for 700 s"
            self.require(now - since <= STUCK_LIMIT_S, what)

    def _flying(self) -> Iterable[tuple[str, int]]:
        """(group, attempt) of dispatched groups whose task, tenant and workers let them go on."""
        store = self.cluster.store
        roles = [worker.role for worker in self.cluster.workers.values() if worker.is_alive]
        served = {b for role in roles if role.kind == "rollout" for b in role.base_models}
        for task in store.tasks.values():
            is_suspended = store.tenants[task.tenant].is_suspended
            if task.state != "running" or is_suspended or task.base_model not in served:
                continue
            for step in task.live_steps:
                for group in step.groups:
                    if group.state == "dispatched":
                        yield group.id, group.attempt


class OwnFailure(Checker):
    """5. A task fails by its own fault only; another tenant's ends nowhere else."""

    name = "5 failures stay with their owner"

    def see(self, fact: Fact) -> None:
        if isinstance(fact, TaskEnded) and fact.state == "failed":
            poison = self.cluster.store.tasks[fact.task].poison
            is_own = bool(poison) and fact.reason == REPORTED_ERROR.format(
                part=poison, task=fact.task
            )
            self.require(is_own, f"{fact.task} (poison: {poison or 'none'}) failed: {fact.reason}")


class Durability(Checker):
    """7. What is committed or finished stays so, whatever dies."""

    name = "7 committed work survives"

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(cluster)
        self._versions: dict[str, list[tuple[int, str]]] = {}
        self._finished: dict[str, dict[str, tuple[Sample, ...]]] = {}  # by task, then group

    def see(self, fact: Fact) -> None:
        if isinstance(fact, Committed):
            versions = self._versions.setdefault(fact.task, [])
            versions.append((fact.number, fact.digest))
            self._finished.pop(fact.task, None)  # a step's groups matter until it is committed
        elif isinstance(fact, GroupFinished):
            self._finished.setdefault(fact.task, {})[fact.group] = fact.samples

    def look(self) -> None:
        """Runs tens of thousands of times a run, so it words nothing that still holds."""
        store = self.cluster.store
        for task, versions in self._versions.items():
            present = store.tasks[task].versions
            if present != versions:
                raise Violation(self.name, f"{task} had versions {versions}, has {present}")
        for groups in self._finished.values():
            for group_id, samples in groups.items():
                _, _, group = store.group(group_id)
                if group.state != "finished" or group.samples != samples:
                    raise Violation(self.name, f"{group_id} was finished, is {group.state}")


class Promises(Checker):
    """8. What the engines of a base model hold is not promised twice; one group may go alone."""

    def see(self, fact: Fact) -> None:
        if not isinstance(fact, Planned):
            return
        sent = {c.group for c in fact.commands if isinstance(c, DispatchGroup)}
        for base_model in sorted({t.base_model for t in fact.snapshot.tasks}) if sent else ():
            live = live_workers(fact.snapshot)
            workers = {
                f"worker:{w.incarnation}": w
                for w in live.values()
                if w.kind == "rollout" and base_model in w.base_models
            }
            flying = [
                (task, group)
                for task in fact.snapshot.tasks
                if task.base_model == base_model
                for step in task.steps
                for group in step.groups
                if group.id in sent
                or (group.state == "dispatched" and not group_loss(group, fact.snapshot, live))
            ]
            if len(flying) > 1 and any(group.id in sent for _, group in flying):
                self.check(base_model, workers, flying, sent)

    def check(
        self,
        base_model: str,
        workers: dict[str, WorkerView],
        flying: list[tuple[TaskView, GroupView]],
        sent: set[str],
    ) -> None:
        """workers: by place. flying: all groups in flight, those of this plan, `sent`, too."""
        raise NotImplementedError


class Slots(Promises):
    """Sequences: with the rollout workers, or on the way to them, at most 1.5 times what there is;
    with those at the environment at most 8 times."""

    name = "8 slots promised once"

    def check(
        self,
        base_model: str,
        workers: dict[str, WorkerView],
        flying: list[tuple[TaskView, GroupView]],
        sent: set[str],
    ) -> None:
        slots = sum(worker.slots for worker in workers.values())
        near = away = 0
        for task, group in flying:
            if group.id in sent or not group.whereabouts:
                near += task.group_size
                continue
            for where in group.whereabouts:
                is_near = where.place in workers or where.place.startswith("queue:rollout.")
                near, away = (near + where.count, away) if is_near else (near, away + where.count)
        what = f"{base_model}: {near} sequences in flight and {away} away for {slots} slots"
        self.require(near <= IN_FLIGHT_PER_SLOT * slots, what)
        self.require(near + away <= EPISODES_PER_SLOT * slots, what)


class Memory(Promises):
    """KV: what is expected of all with the workers fits; what no beat has seen fits what is free.

    Ten tokens a trajectory are expected, as the simulated tasks cost.
    """

    name = "8 memory promised once"

    def check(
        self,
        base_model: str,
        workers: dict[str, WorkerView],
        flying: list[tuple[TaskView, GroupView]],
        sent: set[str],
    ) -> None:
        seen = unseen = 0
        for task, group in flying:
            if group.id in sent or not group.whereabouts:
                unseen += 10 * task.group_size
                continue
            for where in group.whereabouts:
                worker = workers.get(where.place)
                if worker and where.since <= worker.last_beat_at:
                    seen += 10 * where.count
                elif worker or where.place == f"queue:rollout.{base_model}":
                    unseen += 10 * where.count
        whole = sum(worker.kv_tokens for worker in workers.values())
        free = sum(worker.kv_tokens_free for worker in workers.values())
        what = f"{base_model}: {seen} tokens of KV expected and {unseen} promised"
        self.require(seen + unseen <= whole, f"{what}, of {whole}")
        self.require(unseen <= free, f"{what}, {free} free")


class Adapters(Promises):
    """Adapter slots: no task begins while as many are with the workers as one of them can hold."""

    name = "8 adapter slots promised once"

    def check(
        self,
        base_model: str,
        workers: dict[str, WorkerView],
        flying: list[tuple[TaskView, GroupView]],
        sent: set[str],
    ) -> None:
        places = {*workers, f"queue:rollout.{base_model}"}
        before = {
            task.id
            for task, group in flying
            if group.id not in sent
            and (not group.whereabouts or any(w.place in places for w in group.whereabouts))
        }
        new = {task.id for task, group in flying if group.id in sent} - before
        slots = min(worker.adapter_slots for worker in workers.values())
        what = f"{base_model}: {sorted(new)} beside {sorted(before)} for {slots} adapter slots"
        self.require(not new or len(before | new) <= slots, what)


CHECKERS: tuple[type[Checker], ...] = (
    OnPolicy,
    OneStep,
    OnePass,
    Leases,
    OwnFailure,
    Durability,
    Slots,
    Memory,
    Adapters,
)
