"""Which groups go to the rollout queues: lost ones again, then waiting ones in fair order.

Keeps invariant 8: the sequences in flight for a base model never exceed IN_FLIGHT_PER_SLOT times
the slots of its living rollout workers, except that one group may always go alone. The first group
in line that does not fit stops the line of its base model: were smaller groups let past, a large
one might never go.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from math import floor

from .fairness import VirtualTimes
from .leases import group_loss
from .snapshot import DispatchGroup, GroupView, TaskView
from .world import World

IN_FLIGHT_PER_SLOT = 1.5  # half as much again waits in the queue, so that no engine runs dry


@dataclass
class _Line:
    """The groups of one base model while a plan is made."""

    base_model: str
    has_worker: bool
    capacity: int  # sequences that may be in flight
    in_flight: int = 0  # sequences
    groups_in_flight: Counter[str] = field(default_factory=Counter)  # by task id
    lost: list[tuple[TaskView, GroupView, str]] = field(default_factory=list)  # with the cause
    waiting: dict[str, list[tuple[TaskView, GroupView]]] = field(default_factory=dict)  # by task id

    def has_room(self, task: TaskView) -> bool:
        alone = self.in_flight == 0
        return self.has_worker and (alone or self.in_flight + task.group_size <= self.capacity)

    def add_flight(self, task: TaskView, sequences: int) -> None:
        self.in_flight += sequences
        self.groups_in_flight[task.id] += 1

    def tenants_waiting(self) -> set[str]:
        return {groups[0][0].tenant for groups in self.waiting.values() if groups}

    def next_waiting(self, tenant: str) -> tuple[TaskView, GroupView]:
        """Of the tenant's tasks, the one with fewest groups in flight; then first submitted."""
        heads = [groups[0] for groups in self.waiting.values() if groups]
        return min(
            (head for head in heads if head[0].tenant == tenant),
            key=lambda head: (self.groups_in_flight[head[0].id], head[0].submitted_at, head[0].id),
        )


def dispatch_groups(world: World, over: set[str]) -> list[DispatchGroup]:
    """Dispatches in the order in which they should be sent. over: tasks that this plan ends.

    A lost group goes first and costs nothing: its tenant has paid for it, a stopped worker is not
    the tenant's fault, and nobody can bring such groups about to get ahead. A group that came back
    with an error waits its turn again and is paid for again: errors may well be its tenant's doing.
    """
    costs: dict[str, int] = {}
    for task in world.tasks:
        costs[task.tenant] = max(task.group_cost, costs.get(task.tenant, 0))
    times = VirtualTimes(world.tenants.values(), costs)
    commands: list[DispatchGroup] = []
    for base_model in sorted({task.base_model for task in world.tasks}):
        line = _line(world, base_model, over)
        if _dispatch_lost(line, times, commands):
            _dispatch_waiting(line, times, commands)
    return commands


def _line(world: World, base_model: str, over: set[str]) -> _Line:
    """Sort the base model's groups into in flight, lost and waiting.

    Groups of a task that may not start anything, or that ends now, still fill the engines.
    """
    workers = world.workers("rollout", base_model)
    slots = sum(worker.slots for worker in workers)
    line = _Line(base_model, bool(workers), floor(IN_FLIGHT_PER_SLOT * slots))
    for task in world.tasks:
        if task.base_model != base_model or task.step is None:
            continue
        startable = world.may_start(task) and task.id not in over
        for group in sorted(task.step.groups, key=lambda group: (group.index, group.id)):
            cause = ""
            if group.state == "dispatched":
                cause = group_loss(group, world.snapshot, world.live)
                if not cause:
                    line.add_flight(task, unfinished(task, group))
            if cause and startable:
                line.lost.append((task, group, cause))
            elif group.state == "waiting" and startable:
                line.waiting.setdefault(task.id, []).append((task, group))
    line.lost.sort(key=lambda entry: (entry[1].dispatched_at, entry[0].id, entry[1].index))
    return line


def unfinished(task: TaskView, group: GroupView) -> int:
    """Trajectories of a dispatched group that are still under way."""
    if not group.whereabouts:
        return task.group_size
    return min(task.group_size, sum(where.count for where in group.whereabouts))


def _dispatch_lost(line: _Line, times: VirtualTimes, commands: list[DispatchGroup]) -> bool:
    """Returns False if one of them did not fit: then nothing else may pass it."""
    for task, group, cause in line.lost:
        if not line.has_room(task):
            return False
        line.add_flight(task, task.group_size)
        commands.append(_command(task, group, 0, times[task.tenant], cause))
    return True


def _dispatch_waiting(line: _Line, times: VirtualTimes, commands: list[DispatchGroup]) -> None:
    while tenants := line.tenants_waiting():
        task, group = line.next_waiting(times.next_of(tenants))
        if not line.has_room(task):
            return
        line.waiting[task.id].pop(0)
        line.add_flight(task, task.group_size)
        cost = task.group_cost
        cause = f"attempt {group.attempt} failed: {group.last_error}" if group.errors else ""
        commands.append(_command(task, group, cost, times.charge(task.tenant, cost), cause))


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
