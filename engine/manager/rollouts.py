"""Which groups go to the rollout queues: lost ones again, then waiting ones in fair order.

Keeps invariant 8: what is in flight for a base model never exceeds what its living rollout workers
have room for (room.py), except that one group may always go alone. The first group in line that
lacks sequences or KV stops the line of its base model: were smaller groups let past, a large one
might never go.

A task that lacks an adapter slot stops nobody, for the others need none of it: the tasks whose
adapters are in use go on. It waits for one of them at most until the end of that one's step, when
no group of it is left to send. Then the slot goes by the same order as everything else, to the
tenant that has had least and there to the step that was opened first; whoever has just used it
stands behind with its next step.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from .fairness import VirtualTimes
from .leases import group_loss, may_go_again
from .room import ADAPTERS, Room
from .snapshot import DispatchGroup, GroupView, TaskView
from .world import World


@dataclass
class Dispatches:
    """What a plan sends to the rollout workers, and why it sends no more."""

    commands: list[DispatchGroup] = field(default_factory=list)  # in the order to send them
    lacks: dict[str, str] = field(default_factory=dict)  # by task id: what its next group waits for


@dataclass
class _Line:
    """The groups of one base model while a plan is made."""

    room: Room
    groups_in_flight: Counter[str] = field(default_factory=Counter)  # by task id
    lost: list[tuple[TaskView, GroupView, str]] = field(default_factory=list)  # with the cause
    waiting: dict[str, list[tuple[TaskView, GroupView]]] = field(default_factory=dict)  # by task id

    def add_flight(self, task: TaskView, group: GroupView) -> None:
        self.room.add_flight(task, group)
        self.groups_in_flight[task.id] += 1

    def promise(self, task: TaskView) -> None:
        self.room.promise(task)
        self.groups_in_flight[task.id] += 1

    def tenants_waiting(self) -> set[str]:
        return {groups[0][0].tenant for groups in self.waiting.values() if groups}

    def next_waiting(self, tenant: str) -> tuple[TaskView, GroupView]:
        """Of the tenant's tasks, the one with fewest groups in flight; then whose step is oldest.

        By age of the task, two tasks could take a slot in turn for ever, and a third none.
        """
        heads = [groups[0] for groups in self.waiting.values() if groups]
        return min(
            (head for head in heads if head[0].tenant == tenant),
            key=lambda head: (
                self.groups_in_flight[head[0].id],
                head[0].step.opened_at if head[0].step else 0.0,
                head[0].submitted_at,
                head[0].id,
            ),
        )


def dispatch_groups(world: World, over: set[str]) -> Dispatches:
    """The groups that go now. over: tasks that this plan ends.

    A lost group goes first and costs nothing: its tenant has paid for it, a stopped worker is not
    the tenant's fault, and nobody can bring such groups about to get ahead. A group that came back
    with an error waits its turn again and is paid for again: errors may well be its tenant's doing.
    """
    costs: dict[str, int] = {}
    for task in world.tasks:
        costs[task.tenant] = max(task.group_cost, costs.get(task.tenant, 0))
    times = VirtualTimes(world.tenants.values(), costs)
    found = Dispatches()
    for base_model in sorted({task.base_model for task in world.tasks}):
        line = _line(world, base_model, over)
        if lack := _dispatch_lost(line, times, found) or _dispatch_waiting(line, times, found):
            held_back = {task_id for task_id, groups in line.waiting.items() if groups}
            found.lacks.update(dict.fromkeys(held_back - found.lacks.keys(), lack))
    return found


def _line(world: World, base_model: str, over: set[str]) -> _Line:
    """Sort the base model's groups into in flight, lost and waiting.

    Groups of a task that may not start anything, or that ends now, still fill the engines.
    """
    away = [f"worker:{w.incarnation}" for w in world.live.values() if w.kind == "environment"]
    line = _Line(Room(world.workers("rollout", base_model), away))
    for task in world.tasks:
        if task.base_model != base_model or task.step is None:
            continue
        startable = world.may_start(task) and task.id not in over
        for group in sorted(task.step.groups, key=lambda group: (group.index, group.id)):
            cause = ""
            if group.state == "dispatched":
                cause = group_loss(group, world.snapshot, world.live)
                if not cause:
                    line.add_flight(task, group)
            if cause and startable and may_go_again(group, world.snapshot):
                line.lost.append((task, group, cause))
            elif group.state == "waiting" and startable:
                line.waiting.setdefault(task.id, []).append((task, group))
    line.lost.sort(key=lambda entry: (entry[1].dispatched_at, entry[0].id, entry[1].index))
    return line


def _dispatch_lost(line: _Line, times: VirtualTimes, found: Dispatches) -> str:
    """Returns what one of them lacks: then nothing else may pass it. "" if none lacks anything.

    One that lacks an adapter slot is passed: those that have theirs take nothing from it.
    """
    for task, group, cause in line.lost:
        lack = line.room.lack(task)
        if lack == ADAPTERS:
            found.lacks[task.id] = lack
        elif lack:
            found.lacks[task.id] = lack
            return lack
        else:
            line.promise(task)
            found.commands.append(_command(task, group, 0, times[task.tenant], cause))
    return ""


def _dispatch_waiting(line: _Line, times: VirtualTimes, found: Dispatches) -> str:
    """Returns what the first of them lacks that stops the line; "" if none is stopped."""
    while tenants := line.tenants_waiting():
        task, group = line.next_waiting(times.next_of(tenants))
        lack = line.room.lack(task)
        if lack == ADAPTERS:
            found.lacks[task.id] = lack
            del line.waiting[task.id]
            continue
        if lack:
            return lack
        line.waiting[task.id].pop(0)
        line.promise(task)
        cost = task.group_cost
        cause = f"attempt {group.attempt} failed: {group.last_error}" if group.errors else ""
        found.commands.append(_command(task, group, cost, times.charge(task.tenant, cost), cause))
    return ""


def _command(
    task: TaskView, group: GroupView, cost: int, virtual_time: float, cause: str
) -> DispatchGroup:
    assert task.step is not None
    return DispatchGroup(
        task=task.id,
        step=task.step.number,
        group=group.id,
        attempt=group.attempt + 1,
        cost=cost,
        virtual_time=virtual_time,
        cause=cause,
    )
