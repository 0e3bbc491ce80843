"""What work of a task costs, learned from what was done; the planner shares and paces by it.

Three running means on the task's row, each 0 until there was one:

group_s: rollout device-seconds of a group. An engine works on the sequences of many tasks at once,
    so each turn is charged its share (`engine.rollout.device_share`): every moment in which the
    engine computes is shared alike by the sequences at work. Waiting for tools or in a queue costs
    nothing.
pass_s: seconds from the moment that a trainer took a step to the commit of its version.
rollout_s: seconds by the clock in which at least one group of a step was under way, from its last
    dispatch until it was finished. Neither the wait before the first dispatch counts, nor a pause
    after which nothing was under way any more, nor what a lost attempt took.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from django.db.models import Case, F, Value, When

from engine.types import Trajectory
from jobs.models import Group, Step, Task
from jobs.services.spans import merged

GROUP_SMOOTHING = 0.2  # weight of the newest group in a running mean; a step has many
STEP_SMOOTHING = 0.3  # and of the newest step


def running_mean(field: str, value: float, weight: float) -> Any:
    """For an update: the field moved towards `value`; or that itself, for the first one."""
    newest = Value(float(value))
    moved = F(field) + weight * (newest - F(field))
    return Case(When(**{field: 0.0}, then=newest), default=moved)


def learn_group(step: Step, trajectories: Iterable[Trajectory], tokens: int) -> None:
    """What a finished group cost. tokens: all that were computed for it, its prompt once."""
    Task.objects.filter(pk=step.task_id).update(
        mean_group_tokens=running_mean("mean_group_tokens", tokens, GROUP_SMOOTHING)
    )
    Step.objects.filter(pk=step.pk).update(device_s=F("device_s") + group_seconds(trajectories))


def group_seconds(trajectories: Iterable[Trajectory]) -> float:
    """Device-seconds of all turns, as the engines told them."""
    return sum(turn.device_s for trajectory in trajectories for turn in trajectory.turns)


def learn_rollout(step: Step) -> None:
    """What the rollout of a step took that has just become ready: by the clock, and a group of it
    on average. Were each group learned as it ends, the last ones, which are the longest, would
    count most."""
    times = list(Group.objects.filter(step=step).values_list("dispatched_at", "finished_at"))
    step.refresh_from_db(fields=["device_s"])
    found = {
        "rollout_s": under_way_seconds(times),
        "group_s": step.device_s / max(1, len(times)),
    }
    changes = {name: running_mean(name, s, STEP_SMOOTHING) for name, s in found.items() if s}
    if changes:
        Task.objects.filter(pk=step.task_id).update(**changes)


def under_way_seconds(times: Iterable[tuple[Any, Any]]) -> float:
    """times: (dispatched, finished) of groups. Seconds in which at least one was under way."""
    pieces = ((a.timestamp(), b.timestamp(), 0) for a, b in times if a and b and b > a)
    return sum(end - start for start, end, _ in merged(pieces))


def learn_pass(task: Task, seconds: float) -> None:
    """How long a committed pass took."""
    Task.objects.filter(pk=task.pk).update(
        pass_s=running_mean("pass_s", max(0.0, seconds), STEP_SMOOTHING)
    )
