"""The eighth invariant: nothing that the engines have is promised twice.

There is a checker for each thing that is promised: sequences, KV, adapter slots. One limit: which
leases have run out they learn from `engine.manager.leases`, as only the fourth is about that.
"""

from __future__ import annotations

from dataclasses import dataclass

from engine.manager.leases import group_loss, live_workers
from engine.manager.snapshot import DispatchGroup, GroupView, Snapshot, TaskView, WorkerView

from .checker import Checker
from .cluster import Cluster
from .facts import Fact, Planned
from .rows import TOKENS

IN_FLIGHT_PER_SLOT = 1.5
EPISODES_PER_SLOT = 8


@dataclass(frozen=True)
class Flight:
    """All that is in flight for a base model once a plan is carried out."""

    base_model: str
    workers: dict[str, WorkerView]  # living rollout workers, by place
    groups: list[tuple[TaskView, GroupView]]
    sent: set[str]  # those of the groups that the plan sends
    limit: int  # sequences that the engines are to get at once; 0: not limited

    def is_near(self, place: str) -> bool:
        """Whether a trajectory there is with the engines, or on its way to them."""
        return place in self.workers or place.startswith("queue:rollout.")


def flights(planned: Planned) -> list[Flight]:
    """One for each base model to which the plan sends anything. A group may always go alone."""
    dispatches = [c for c in planned.commands if isinstance(c, DispatchGroup)]
    if not dispatches:
        return []
    sent, tasks = {c.group for c in dispatches}, {c.task for c in dispatches}
    snapshot, live = planned.snapshot, live_workers(planned.snapshot)
    found = []
    for base_model in sorted({task.base_model for task in snapshot.tasks if task.id in tasks}):
        groups = _flying(snapshot, base_model, sent, live)
        if len(groups) > 1:
            workers = {
                f"worker:{worker.incarnation}": worker
                for worker in live.values()
                if worker.kind == "rollout" and base_model in worker.base_models
            }
            limits = [c.limit for c in snapshot.concurrency if c.base_model == base_model]
            found.append(Flight(base_model, workers, groups, sent, sum(limits)))
    return found


def _flying(
    snapshot: Snapshot, base_model: str, sent: set[str], live: dict[str, WorkerView]
) -> list[tuple[TaskView, GroupView]]:
    return [
        (task, group)
        for task in snapshot.tasks
        if task.base_model == base_model
        for step in task.steps
        for group in step.groups
        if group.id in sent
        or (group.state == "dispatched" and not group_loss(group, snapshot, live))
    ]


class Promises(Checker):
    """8. What the engines of a base model hold is not promised twice; one group may go alone."""

    sees = (Planned,)

    def __init__(self, cluster: Cluster, promises: list[Promise]) -> None:
        super().__init__(cluster)
        self._promises = promises

    def see(self, fact: Fact) -> None:
        if isinstance(fact, Planned):
            for flight in flights(fact):
                for promise in self._promises:
                    promise.check(flight)


class Promise(Checker):
    """One thing that is promised."""

    def check(self, flight: Flight) -> None:
        raise NotImplementedError


class Slots(Promise):
    """Sequences: with the rollout workers, or on the way to them, at most 1.5 times what there is,
    and no more than feedback allows; with those at the environment at most 8 times."""

    name = "8 slots promised once"

    def check(self, flight: Flight) -> None:
        slots = sum(worker.slots for worker in flight.workers.values())
        near = away = 0
        for task, group in flight.groups:
            if group.id in flight.sent or not group.whereabouts:
                near += task.group_size
                continue
            for where in group.whereabouts:
                if flight.is_near(where.place):
                    near += where.count
                else:
                    away += where.count
        what = f"{flight.base_model}: {near} sequences in flight and {away} away for {slots} slots"
        self.require(near <= IN_FLIGHT_PER_SLOT * slots, what)
        self.require(near + away <= EPISODES_PER_SLOT * slots, what)
        if flight.limit and self.cluster.scenario.policy.adapts:
            self.require(near <= flight.limit, f"{what}, limited to {flight.limit}")


class Memory(Promise):
    """KV: what is expected of all with the workers fits; what no beat saw fits what is free."""

    name = "8 memory promised once"

    def check(self, flight: Flight) -> None:
        if not all(worker.kv_tokens for worker in flight.workers.values()):
            return
        seen = unseen = 0
        for task, group in flight.groups:
            if group.id in flight.sent or not group.whereabouts:
                unseen += TOKENS * task.group_size
                continue
            for where in group.whereabouts:
                worker = flight.workers.get(where.place)
                if worker and where.since <= worker.last_beat_at:
                    seen += TOKENS * where.count
                elif flight.is_near(where.place):
                    unseen += TOKENS * where.count
        whole = sum(worker.kv_tokens for worker in flight.workers.values())
        free = sum(worker.kv_tokens_free for worker in flight.workers.values())
        what = f"{flight.base_model}: {seen} tokens of KV expected and {unseen} promised"
        self.require(seen + unseen <= whole, f"{what}, of {whole}")
        self.require(unseen <= free, f"{what}, {free} free")


class Adapters(Promise):
    """Adapter slots: no task begins while as many are with the workers as one of them can hold."""

    name = "8 adapter slots promised once"

    def check(self, flight: Flight) -> None:
        slots = min((w.adapter_slots for w in flight.workers.values()), default=0)
        before = {
            task.id
            for task, group in flight.groups
            if group.id not in flight.sent
            and (not group.whereabouts or any(flight.is_near(w.place) for w in group.whereabouts))
        }
        new = {task.id for task, group in flight.groups if group.id in flight.sent} - before
        names = f"{sorted(new)} beside {sorted(before)}"
        what = f"{flight.base_model}: {names} for {slots} adapter slots"
        self.require(not slots or not new or len(before | new) <= slots, what)
