"""The order in which a tenant's queued tasks are let in."""

from __future__ import annotations

from .priority import AGING_S
from .snapshot import TaskView
from .world import World


def queued_tasks(world: World) -> list[TaskView]:
    """All queued tasks, each tenant's in the order in which its quota lets them in: by priority,
    of which one more is worth as much as `AGING_S` of waiting, then by submission.

    Since all grow older alike the order is the same at any time, so no place moves with time alone.
    """
    return sorted((task for task in world.tasks if task.state == "queued"), key=_precedence)


def _precedence(task: TaskView) -> tuple[float, float, str]:
    return task.submitted_at - AGING_S * task.priority, task.submitted_at, task.id
