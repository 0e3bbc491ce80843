"""One line about what the tasks do, for the terminal of `manage.py run`."""

from __future__ import annotations

from jobs.models import Step, Task

SHOWN = 4  # tasks on the line; the rest is counted


def status_line() -> str:
    """Active tasks with their step and its mean reward, r. Raises DatabaseError."""
    tasks = list(
        Task.objects.filter(state__in=Task.ACTIVE).select_related("tenant").order_by("submitted_at")
    )
    if not tasks:
        return "no task is active"
    parts = [_describe(task) for task in tasks[:SHOWN]]
    if len(tasks) > SHOWN:
        parts.append(f"and {len(tasks) - SHOWN} more")
    return " · ".join(parts)


def _describe(task: Task) -> str:
    label = f"{task.tenant.slug}/{task.name}"
    if task.state != Task.State.RUNNING:
        return f"{label} {task.state}"
    done = Step.objects.filter(task=task, state=Step.State.COMMITTED).order_by("-number")
    last = done.first()
    place = f"{last.number + 1 if last else 0}/{task.config['max_steps']}"
    reward = last.metrics.get("reward") if last else None
    return f"{label} {place}" + (f" r={reward:.2f}" if reward is not None else "")
