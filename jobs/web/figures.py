"""Numbers and sentences of a task's page, from its rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from jobs.live.series import is_number
from jobs.models import Step, Task


@dataclass(frozen=True)
class Progress:
    """Where a task stands. Rewards are means over a step; None before the first."""

    done: int
    total: int
    rewards: tuple[tuple[int, float], ...]

    @property
    def first(self) -> float | None:
        return self.rewards[0][1] if self.rewards else None

    @property
    def last(self) -> float | None:
        return self.rewards[-1][1] if self.rewards else None

    @property
    def change(self) -> float | None:
        if self.first is None or self.last is None:
            return None
        return self.last - self.first

    @property
    def best(self) -> tuple[int, float] | None:
        return max(self.rewards, key=lambda pair: pair[1], default=None)

    @property
    def values(self) -> list[float]:
        return [value for _, value in self.rewards]

    @property
    def sentence(self) -> str:
        """What the reward curve shows, for who does not see it."""
        if self.first is None or self.last is None or self.best is None:
            return "The first point appears when step 1 has been trained."
        if self.done == 1:
            return f"{self.first:.3f} in step 1; the next step makes it a curve."
        return (
            f"From {self.first:.3f} to {self.last:.3f} over {self.done} steps,"
            f" best {self.best[1]:.3f} at step {self.best[0]}."
        )


def progress_of(tasks: list[Task]) -> dict[Any, Progress]:
    """The progress of each task, in one query."""
    rows = Step.objects.filter(task__in=tasks, state=Step.State.COMMITTED).order_by("number")
    found: dict[Any, list[tuple[int, Any]]] = {task.pk: [] for task in tasks}
    for task_id, number, reward in rows.values_list("task_id", "number", "metrics__reward"):
        found[task_id].append((number + 1, reward))
    return {
        task.pk: Progress(
            done=len(found[task.pk]),
            total=task.config["max_steps"],
            rewards=tuple((step, float(r)) for step, r in found[task.pk] if is_number(r)),
        )
        for task in tasks
    }


def headline(task: Task, progress: Progress) -> str:
    """11 of 40 steps done. What it does just now is the task's reason; when it may be done, the
    outlook's."""
    parts = [f"{progress.done} of {progress.total} steps done"]
    if task.state == Task.State.QUEUED and task.queue_position:
        parts.append(f"place {task.queue_position} in the queue")
    if task.is_over and task.started_at and task.ended_at:
        parts.append(f"took {_minutes((task.ended_at - task.started_at).total_seconds())}")
    return ", ".join(parts)


def _minutes(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 5_400:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3_600:.1f} h"
