"""Which steps train next: lost passes first, then ready steps in the order they became ready.

Keeps invariant 3: a training worker has one pass at a time, and passes follow the FIFO of ready
steps. A step whose base model no free trainer serves lets those of other base models past.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from .leases import pass_loss
from .snapshot import DispatchTraining, StepView, TaskView, WorkerView
from .world import World


@dataclass(frozen=True)
class TrainingLine:
    """The passes that this plan begins, and the tasks that wait for one, next first."""

    commands: list[DispatchTraining] = field(default_factory=list)
    waiting: list[TaskView] = field(default_factory=list)

    def places(self) -> dict[str, int]:
        """By task id, each one's place among those of its base model that wait, from 1 on."""
        places: dict[str, int] = {}
        num_before: Counter[str] = Counter()
        for task in self.waiting:
            num_before[task.base_model] += 1
            places.setdefault(task.id, num_before[task.base_model])
        return places


@dataclass(frozen=True)
class _Wish:
    """A step that a trainer should take."""

    task: TaskView
    step: StepView
    cause: str = ""  # why its last pass is lost; "" of a ready step


def dispatch_passes(world: World, over: set[str]) -> TrainingLine:
    """Begin as many passes as there are free trainers. over: tasks that this plan ends.

    A trainer is free unless it holds a pass, or one waits in a queue for it. Of the free ones the
    one that serves fewest base models is taken, so that the others stay open to rarer ones. A
    trainer takes as many steps together as the policy lets it.
    """
    if world.policy.has_barrier and _is_anyone_generating(world):
        return TrainingLine(waiting=[wish.task for wish in _ready(world, over)])
    in_training = [
        _Wish(task, step, pass_loss(step, task.base_model, world.snapshot, world.live))
        for task in world.tasks
        for step in task.steps
        if step.state == "training"
    ]
    free = _free_trainers(world, [wish for wish in in_training if not wish.cause])
    lost = [w for w in in_training if w.cause and world.may_start(w.task) and w.task.id not in over]
    room = Counter({trainer.incarnation: world.policy.steps_per_pass for trainer in free})
    line = TrainingLine()
    for wish in [*sorted(lost, key=_place), *_ready(world, over)]:
        trainer = _trainer_for(wish.task.base_model, [w for w in free if room[w.incarnation]])
        if trainer is None:
            line.waiting.append(wish.task)
            continue
        room[trainer.incarnation] -= 1
        step = wish.step
        line.commands.append(
            DispatchTraining(wish.task.id, step.number, step.fence + 1, wish.cause)
        )
    return line


def _ready(world: World, over: set[str]) -> list[_Wish]:
    """Ready steps in the order of the FIFO, but for those that must let an earlier one of their
    own task go first."""
    wishes = [
        _Wish(task, task.steps[0])
        for task in world.tasks
        if task.steps
        and task.steps[0].state == "ready"
        and world.may_start(task)
        and task.id not in over
    ]
    return sorted(wishes, key=_place)


def _place(wish: _Wish) -> tuple[int, str]:
    return wish.step.ready_order, wish.task.id


def _is_anyone_generating(world: World) -> bool:
    """Whether some task that may go on has a step that is not whole."""
    return any(
        step.state == "open" for task in world.tasks if world.may_start(task) for step in task.steps
    )


def _free_trainers(world: World, under_way: list[_Wish]) -> list[WorkerView]:
    """Living trainers that neither hold a pass nor are needed by one that waits in a queue."""
    holders = {wish.step.holder for wish in under_way}
    free = [
        worker
        for worker in world.live.values()
        if worker.kind == "training" and worker.incarnation not in holders
    ]
    waiting: Counter[str] = Counter()  # steps by the trainer that will take them
    for wish in under_way:
        if wish.step.holder:
            continue
        open_ones = [w for w in free if waiting[w.incarnation] < world.policy.steps_per_pass]
        trainer = _trainer_for(wish.task.base_model, open_ones)
        if trainer:
            waiting[trainer.incarnation] += 1
    return [worker for worker in free if not waiting[worker.incarnation]]


def _trainer_for(base_model: str, free: list[WorkerView]) -> WorkerView | None:
    serving = [worker for worker in free if base_model in worker.base_models]
    return min(serving, key=lambda w: (len(w.base_models), w.incarnation), default=None)
