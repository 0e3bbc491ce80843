"""What counts among the tasks of a tenant: the priority that it gave them, and how long they wait.

So that nobody waits for ever, waiting is worth as much as priority: more of it the longer it lasts.
"""

from __future__ import annotations

from .snapshot import StepView, TaskView

AGING_S = 600.0  # who waits so long has one priority more


def aged_priority(task: TaskView, step: StepView, now: float) -> float:
    """The task's priority, with what its step's waiting has added to it."""
    return task.priority + abs(now - step.opened_at) // AGING_S
