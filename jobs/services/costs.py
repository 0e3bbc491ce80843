"""What work of a task costs, learned from what was done; the planner shares and paces by it.

Three running means on the task's row, each 0 until there was one:

group_s: rollout device-seconds of a group. An engine works on the sequences of many tasks at once,
    so a group is charged its share: each token that it generated costs what a token cost the engine
    that generated it just then, seconds of computing by tokens of everybody's, as that worker told
    with its last beats (`TokenPrice`). Prompts, and answers of the environment, are in the price of
    the tokens that everybody generated meanwhile. Waiting for tools, or in a queue, costs nothing.
pass_s: seconds from the moment that a trainer took a step to the commit of its version.
rollout_s: seconds by the clock in which at least one group of a step was under way, from its last
    dispatch until it was finished. Neither the wait before the first dispatch counts, nor a pause
    after which nothing was under way any more, nor what a lost attempt took.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

from django.db.models import Case, F, Value, When

from engine.types import Trajectory
from jobs.models import Group, Step, Task, Worker
from jobs.services.spans import merged

GROUP_SMOOTHING = 0.2  # weight of the newest group in a running mean; a step has many
STEP_SMOOTHING = 0.3  # and of the newest step
PRICE_KEPT = 0.8  # weight of all earlier beats together at each beat that saw tokens
PRICE = "busy_s_per_token"  # among a rollout worker's figures


class TokenPrice:
    """Seconds that an engine computes for a token, over its last beats; the busiest count most."""

    def __init__(self) -> None:
        self._seen = (0, 0.0)  # counters at the last beat that saw tokens
        self._tokens = self._busy_s = 0.0

    def see(self, tokens: int, busy_s: float) -> float:
        """Take the engine's counters since it was made; returns the price, 0 while unknown."""
        more, longer_s = tokens - self._seen[0], busy_s - self._seen[1]
        if more > 0 and longer_s > 0:
            self._tokens = PRICE_KEPT * self._tokens + more
            self._busy_s = PRICE_KEPT * self._busy_s + longer_s
            self._seen = (tokens, busy_s)
        return self._busy_s / self._tokens if self._tokens else 0.0


def running_mean(field: str, value: float, weight: float) -> Any:
    """For an update: the field moved towards `value`; or that itself, for the first one."""
    newest = Value(float(value))
    moved = F(field) + weight * (newest - F(field))
    return Case(When(**{field: 0.0}, then=newest), default=moved)


def learn_group(task: Task, trajectories: Iterable[Trajectory], tokens: int) -> None:
    """What a finished group cost. tokens: all that were computed for it, its prompt once."""
    changes = {"mean_group_tokens": running_mean("mean_group_tokens", tokens, GROUP_SMOOTHING)}
    if seconds := group_seconds(trajectories):
        changes["group_s"] = running_mean("group_s", seconds, GROUP_SMOOTHING)
    Task.objects.filter(pk=task.pk).update(**changes)


def group_seconds(trajectories: Iterable[Trajectory]) -> float:
    """Device-seconds by the prices of the workers that live; 0 if none of them tells any.

    What a worker generated that has no price costs as much as the rest does on average.
    """
    generated: Counter[str] = Counter()
    for trajectory in trajectories:
        for turn in trajectory.turns:
            generated[turn.worker] += turn.end - turn.start
    rows = Worker.objects.filter(
        kind=Worker.Kind.ROLLOUT, name__in=list(generated), stopped_at=None
    )
    prices = {name: price for name, price in rows.values_list("name", f"stats__{PRICE}") if price}
    priced = sum(generated[name] for name in prices)
    if not priced:
        return 0.0
    seconds = sum(generated[name] * price for name, price in prices.items())
    return seconds * generated.total() / priced


def learn_rollout(step: Step) -> None:
    """How long the rollout of a step took by the clock that has just become ready."""
    times = Group.objects.filter(step=step).values_list("dispatched_at", "finished_at")
    if seconds := under_way_seconds(times):
        Task.objects.filter(pk=step.task_id).update(
            rollout_s=running_mean("rollout_s", seconds, STEP_SMOOTHING)
        )


def under_way_seconds(times: Iterable[tuple[Any, Any]]) -> float:
    """times: (dispatched, finished) of groups. Seconds in which at least one was under way."""
    pieces = ((a.timestamp(), b.timestamp(), 0) for a, b in times if a and b and b > a)
    return sum(end - start for start, end, _ in merged(pieces))


def learn_pass(task: Task, seconds: float) -> None:
    """How long a committed pass took."""
    Task.objects.filter(pk=task.pk).update(
        pass_s=running_mean("pass_s", max(0.0, seconds), STEP_SMOOTHING)
    )
