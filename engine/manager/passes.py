"""Which steps train next: lost passes first, then ready steps in the order they became ready.

Keeps invariant 3: a training worker has one pass at a time, and passes follow the FIFO of ready
steps. A step whose base model no free trainer serves lets those of other base models past.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from .leases import pass_loss
from .snapshot import DispatchTraining, TaskView, WorkerView
from .world import World


@dataclass(frozen=True)
class TrainingLine:
    """The passes that this plan begins, and the tasks that wait for one, next first."""

    commands: list[DispatchTraining] = field(default_factory=list)
    waiting: list[TaskView] = field(default_factory=list)


def dispatch_passes(world: World, over: set[str]) -> TrainingLine:
    """Begin as many passes as there are free trainers. over: tasks that this plan ends.

    A trainer is free unless it holds a pass, or one waits in a queue for it. Of the free ones the
    one that serves fewest base models is taken, so that the others stay open to rarer ones.
    """
    causes = {task.id: _loss(world, task) for task in world.tasks if _is(task, "training")}
    under_way = [task for task in world.tasks if causes.get(task.id) == ""]
    free = _free_trainers(world, under_way)
    line = TrainingLine()
    for task in _in_order(world, causes, over):
        trainer = _trainer_for(task.base_model, free)
        if trainer is None:
            line.waiting.append(task)
            continue
        free.remove(trainer)
        assert task.step is not None
        step = task.step
        command = DispatchTraining(task.id, step.number, step.fence + 1, causes.get(task.id, ""))
        line.commands.append(command)
    return line


def _is(task: TaskView, state: str) -> bool:
    return task.step is not None and task.step.state == state


def _loss(world: World, task: TaskView) -> str:
    assert task.step is not None
    return pass_loss(task.step, task.base_model, world.snapshot, world.live)


def _in_order(world: World, causes: dict[str, str], over: set[str]) -> list[TaskView]:
    """Tasks that want a pass: lost ones, then ready ones; each by place in the FIFO."""
    wanting = [
        task
        for task in world.tasks
        if world.may_start(task)
        and task.id not in over
        and (_is(task, "ready") or causes.get(task.id))
    ]
    return sorted(wanting, key=lambda task: (_is(task, "ready"), _place(task), task.id))


def _place(task: TaskView) -> int:
    return task.step.ready_order if task.step else 0


def _free_trainers(world: World, under_way: list[TaskView]) -> list[WorkerView]:
    """Living trainers that neither hold a pass nor are needed by one that waits in a queue."""
    holders = {task.step.holder for task in under_way if task.step}
    free = [
        worker
        for worker in world.live.values()
        if worker.kind == "training" and worker.incarnation not in holders
    ]
    for task in under_way:
        trainer = _trainer_for(task.base_model, free)
        if task.step and not task.step.holder and trainer:
            free.remove(trainer)
    return free


def _trainer_for(base_model: str, free: list[WorkerView]) -> WorkerView | None:
    serving = [worker for worker in free if base_model in worker.base_models]
    return min(serving, key=lambda w: (len(w.base_models), w.incarnation), default=None)
