"""Which groups go to the rollout queues: lost ones again, then waiting ones in fair order.

Keeps invariant 8: what is in flight for a base model never exceeds what its living rollout workers
have room for (room.py), except that one group may always go alone. The first group in line that
lacks sequences or KV stops the line of its base model: were smaller groups let past, a large one
might never go.

A task that lacks an adapter slot stops nobody, for the others need none of it: the tasks whose
adapters are in use go on. It waits for one of them at most until the end of that one's step, when
no group of it is left to send. Then the slot goes by the same order as everything else, to the
tenant that has had least and there to the task that has; whoever has just used it stands behind.
Nor does a step stop anybody that is not to begin yet, because it would only wait in the trainer's
line (pacing.py).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from heapq import heapify, heappop, heapreplace

from .fairness import Flow, VirtualTimes
from .leases import may_go_again
from .pacing import LETS_PASS, PACED, Pace
from .priority import aged_priority
from .room import ADAPTERS, Room
from .snapshot import DispatchGroup, GroupView, StepView, TaskView, TenantView
from .world import World

# Of one plan, lost groups counted, of which all go that fit; the next one goes on. Who carries a
# plan out locks what it changes.
MAX_DISPATCHES = 100


@dataclass
class Dispatches:
    """What a plan sends to the rollout workers, and why it sends no more."""

    commands: list[DispatchGroup] = field(default_factory=list)  # in the order to send them
    lacks: dict[str, str] = field(default_factory=dict)  # by task id: what its next group waits for


@dataclass(frozen=True, slots=True)
class _Piece:
    """A group with what it belongs to."""

    task: TaskView
    step: StepView
    group: GroupView
    cause: str = ""  # why it is lost


class _Shares:
    """Virtual times of the tenants that have work on a base model, and of each one's tasks there,
    while a plan is made."""

    def __init__(self, world: World, base_model: str, tenants: Mapping[str, TenantView]) -> None:
        """tenants: as they are after what this plan did on other base models."""
        self._costs = world.costs
        # Where steps are paced, whoever has begun one goes on while others may not begin.
        self._paces = world.policy.paces
        self._by_tenant: dict[str, list[TaskView]] = defaultdict(list)
        for task in world.by_base_model[base_model]:
            self._by_tenant[task.tenant].append(task)
        self._tasks: dict[str, VirtualTimes] = {}
        largest = {t: max(map(self._slack, tasks)) for t, tasks in self._by_tenant.items()}
        of_tenants = [Flow(t.id, t.virtual_time, t.weight, t.last_start) for t in tenants.values()]
        self.tenants = VirtualTimes(of_tenants, largest)

    def _slack(self, task: TaskView) -> float:
        """What the task may be served at once while another waits."""
        return self._costs.group_s(task) * (task.batch_size if self._paces else 0)

    def of_tasks(self, tenant: str) -> VirtualTimes:
        """Of the tenant's tasks; made when first asked for, since a plan serves few tenants."""
        if tenant not in self._tasks:
            own = self._by_tenant[tenant]
            flows = [Flow(t.id, t.virtual_time, last_start=t.last_start) for t in own]
            self._tasks[tenant] = VirtualTimes(flows, {t.id: self._slack(t) for t in own})
        return self._tasks[tenant]

    def command(self, piece: _Piece, is_least: bool, is_least_of_own: bool) -> DispatchGroup:
        """Dispatch the piece. is_least: see VirtualTimes.charge; its task of its tenant's too.

        A lost group costs nothing: its tenant has paid for it, a stopped worker is not the tenant's
        fault, and nobody can bring such groups about to get ahead. One that came back with an error
        is paid for again: that may well be its tenant's doing.
        """
        task, group = piece.task, piece.group
        cost = 0.0 if piece.cause else self._costs.group_s(task)
        virtual_time, last_start = self.tenants.charge(task.tenant, cost, is_least)
        of_task = self.of_tasks(task.tenant).charge(task.id, cost, is_least_of_own)
        failed = f"attempt {group.attempt} failed: {group.last_error}" if group.errors else ""
        return DispatchGroup(
            task=task.id,
            step=piece.step.number,
            group=group.id,
            attempt=group.attempt + 1,
            cost=cost,
            virtual_time=virtual_time,
            task_virtual_time=of_task[0],
            cause=piece.cause or failed,
            last_start=last_start,
            task_last_start=of_task[1],
        )


class _Queue:
    """Waiting groups of one base model in fair order: of the tenant that has had least, of highest
    priority, of the task that has had least.

    A plan serves few tenants, so only theirs are put in order.
    """

    def __init__(self, world: World, shares: _Shares, tasks: Iterable[TaskView]) -> None:
        """tasks: those that may begin something."""
        self._now, self._shares = world.snapshot.now, shares
        self._by_tenant: dict[str, list[TaskView]] = defaultdict(list)
        for task in tasks:
            if any(step.waiting for step in task.steps):
                self._by_tenant[task.tenant].append(task)
        # Ids of the tasks that have any
        self.waiting = {task.id for own in self._by_tenant.values() for task in own}
        self._rest: dict[str, Iterator[_Piece]] = {}  # by task id, once its tenant is opened
        self._heads: dict[str, _Piece] = {}  # the group of it that goes next
        self._tasks: dict[str, list[tuple[float, float, float, str]]] = {}
        self._tenants = [shares.tenants.place(tenant) for tenant in self._by_tenant]
        heapify(self._tenants)

    def open(self, tenant: str) -> None:
        """Put the tenant's tasks in order, as they stand now, unless they are."""
        if tenant in self._tasks:
            return
        heap = self._tasks[tenant] = []
        for task in self._by_tenant.get(tenant, []):
            self._rest[task.id] = _waiting(task)
            self._heads[task.id] = next(self._rest[task.id])
            heap.append(self._precedence(self._heads[task.id]))
        heapify(heap)

    def _precedence(self, piece: _Piece) -> tuple[float, float, float, str]:
        task = piece.task
        priority = aged_priority(task, piece.step, self._now)
        return -priority, *self._shares.of_tasks(task.tenant).place(task.id)

    def __bool__(self) -> bool:
        return bool(self._tenants)

    def first(self) -> _Piece:
        *_, tenant = self._tenants[0]
        self.open(tenant)
        return self._heads[self._tasks[tenant][0][-1]]

    def drop(self) -> None:
        """Let the task that is first, and all of its groups, wait for another plan."""
        *_, tenant = self._tenants[0]
        *_, task = heappop(self._tasks[tenant])
        self.waiting.remove(task)
        if not self._tasks[tenant]:
            heappop(self._tenants)

    def advance(self) -> None:
        """The group that is first was sent and charged."""
        *_, tenant = self._tenants[0]
        heap = self._tasks[tenant]
        task = heap[0][-1]
        following = next(self._rest[task], None)
        if following is None:
            self.drop()
        else:
            self._heads[task] = following
            heapreplace(heap, self._precedence(following))
        if self._tenants and self._tenants[0][-1] == tenant:
            heapreplace(self._tenants, self._shares.tenants.place(tenant))


@dataclass
class _Line:
    """The groups of one base model while a plan is made."""

    shares: _Shares
    room: Room
    pace: Pace
    lost: list[_Piece]
    queue: _Queue
    has_passed: bool = False  # whether a task was passed over, so that others behind it may go
    # Of whom one lets others of the same tenant pass: among tenants the turn is its own to give
    lets_pass: set[str] = field(default_factory=set)

    def take(self, piece: _Piece) -> DispatchGroup:
        self.room.promise(piece.task)
        self.pace.begin(piece.task, piece.step)
        is_least = not piece.cause and not self.has_passed
        is_least_of_own = is_least and piece.task.tenant not in self.lets_pass
        return self.shares.command(piece, is_least, is_least_of_own)


def dispatch_groups(world: World, over: set[str]) -> Dispatches:
    """The groups that go now. over: tasks that this plan ends."""
    tenants = dict(world.tenants)
    owners = {task.id: task.tenant for task in world.tasks}
    found = Dispatches()
    if not world.policy.overlaps_training and world.is_training:
        return found
    for base_model in world.by_base_model:
        line = _line(world, base_model, over, _Shares(world, base_model, tenants))
        num_before = len(found.commands)
        if lack := _dispatch_lost(line, found) or _dispatch_waiting(line, found):
            held_back = line.queue.waiting - found.lacks.keys()
            found.lacks.update(dict.fromkeys(held_back, lack))
        for command in found.commands[num_before:]:
            owner = owners[command.task]
            tenants[owner] = replace(
                tenants[owner], virtual_time=command.virtual_time, last_start=command.last_start
            )
    return found


def _line(world: World, base_model: str, over: set[str], shares: _Shares) -> _Line:
    """Sort the base model's groups into in flight, lost and waiting.

    Groups of a task that may not start anything, or that ends now, still fill the engines.
    """
    room = Room(world, base_model)
    lost: list[_Piece] = []
    startable: list[TaskView] = []
    for task in world.by_base_model[base_model]:
        may_start = world.may_start(task) and task.id not in over
        if may_start:
            startable.append(task)
        for step in task.steps:
            gone = _lost(world, task, step)
            room.add_flight(task, step, {piece.group.id for piece in gone})
            if may_start and gone:
                lost.extend(piece for piece in gone if may_go_again(piece.group, world.snapshot))
    lost.sort(key=lambda p: (p.group.dispatched_at, p.task.id, p.group.index))
    queue = _Queue(world, shares, startable)
    for piece in lost:  # as they stand before any of it is sent again, which takes no turn
        queue.open(piece.task.tenant)
    return _Line(shares, room, Pace(world, base_model), lost, queue)


def _waiting(task: TaskView) -> Iterator[_Piece]:
    """Its groups to be sent, oldest step first. Made as they go: most do not in this plan."""
    return (_Piece(task, step, group) for step in task.steps for group in step.waiting)


def _lost(world: World, task: TaskView, step: StepView) -> list[_Piece]:
    if not world.leases.may_be_lost(step):
        return []
    causes = ((group, world.leases.loss(group)) for group in step.dispatched)
    return [_Piece(task, step, group, cause) for group, cause in causes if cause]


def _dispatch_lost(line: _Line, found: Dispatches) -> str:
    """Returns what one of them lacks: then nothing else may pass it. "" if none lacks anything.

    One that lacks an adapter slot is passed: those that have theirs take nothing from it.
    """
    for piece in line.lost:
        lack = line.room.lack(piece.task)
        if lack == ADAPTERS:
            found.lacks[piece.task.id] = lack
        elif lack:
            found.lacks[piece.task.id] = lack
            return lack
        else:
            found.commands.append(line.take(piece))
    return ""


def _dispatch_waiting(line: _Line, found: Dispatches) -> str:
    """Returns what the first of them lacks that stops the line; "" if none is stopped."""
    queue = line.queue
    while queue and len(found.commands) < MAX_DISPATCHES:
        piece = queue.first()
        task = piece.task
        lack = line.pace.lack(task, piece.step) or line.room.lack(task)
        if lack == ADAPTERS or lack.startswith(PACED):
            found.lacks[task.id] = lack
            if lack == LETS_PASS and not line.pace.is_full:
                line.lets_pass.add(task.tenant)
            else:
                line.has_passed = True
            queue.drop()
        elif lack:
            return lack
        else:
            found.commands.append(line.take(piece))
            queue.advance()
    return ""
