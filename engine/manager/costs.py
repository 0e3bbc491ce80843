"""What work of a task is expected to cost, in device-seconds and by the clock.

Costs are learned per task. Of a task that has none yet they are the mean of its base model's other
tasks: not by the token, for its tokens are only a guess then, often by ten times. Where nobody has
any, the guesses at least tell how tasks compare.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from statistics import fmean

from .snapshot import TaskView

UNKNOWN_S_PER_TOKEN = 1e-5  # the same for all; too little, so that nobody pays for a guess


class Costs:
    """Expected costs of the tasks of one snapshot."""

    def __init__(self, tasks: Iterable[TaskView]) -> None:
        self._known: dict[str, _Means] = {}
        by_base_model: dict[str, list[TaskView]] = defaultdict(list)
        for task in tasks:
            by_base_model[task.base_model].append(task)
        for base_model, of_it in by_base_model.items():
            self._known[base_model] = _Means(of_it)

    def group_s(self, task: TaskView) -> float:
        """Rollout device-seconds of a group, and its share of the training pass."""
        rollout_s = task.group_s or self._known[task.base_model].group_s
        if not rollout_s:
            return UNKNOWN_S_PER_TOKEN * max(1, task.group_cost)
        return rollout_s + self.pass_s(task) / max(1, task.batch_size)

    def pass_s(self, task: TaskView) -> float:
        """Training device-seconds of a step; 0 if nobody's are known."""
        return task.pass_s or self._known[task.base_model].pass_s

    def rollout_s(self, task: TaskView) -> float:
        """From the opening of a step until it is ready, by the clock; 0 if nobody's is known."""
        return task.rollout_s or self._known[task.base_model].rollout_s

    def load(self, task: TaskView) -> float:
        """Of a trainer, while the task's steps go on: its passes by its rollouts; 0 if nobody's
        are known."""
        rollout_s = self.rollout_s(task)
        return self.pass_s(task) / rollout_s if rollout_s else 0.0

    def training_left_s(self, task: TaskView) -> float:
        """Training device-seconds that the task still needs; 0 if nobody's are known."""
        return max(0, task.max_steps - task.version) * self.pass_s(task)

    def remaining_s(self, task: TaskView) -> float:
        """How long the task needs by the clock, were it never to wait; 0 if nothing is known. Steps
        overlap as far as its staleness allows, their passes do not."""
        pass_s = self.pass_s(task)
        each_s = max(pass_s, (self.rollout_s(task) + pass_s) / (1 + task.max_staleness))
        return max(0, task.max_steps - task.version) * each_s

    def step_s(self, task: TaskView) -> float:
        """How long a step takes by the clock, were it never to wait; 0 if nothing is known."""
        return self.rollout_s(task) + self.pass_s(task)


class _Means:
    """Of the tasks of a base model whose costs are known; 0 where none are."""

    def __init__(self, tasks: list[TaskView]) -> None:
        self.group_s = _mean(task.group_s for task in tasks)
        self.pass_s = _mean(task.pass_s for task in tasks)
        self.rollout_s = _mean(task.rollout_s for task in tasks)


def _mean(values: Iterable[float]) -> float:
    known = [value for value in values if value > 0]
    return fmean(known) if known else 0.0
