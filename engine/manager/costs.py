"""What work of a task is expected to cost, in device-seconds and by the clock.

Costs are learned per task. Of a task that has none yet, they are those of its base model's other
tasks by the token; where nobody has any, all that counts is how tasks compare.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from .snapshot import TaskView

UNKNOWN_S_PER_TOKEN = 1e-3  # the same for all, so shares come out right whatever it is


class Costs:
    """Expected costs of the tasks of one snapshot."""

    def __init__(self, tasks: Iterable[TaskView]) -> None:
        known: dict[str, list[TaskView]] = defaultdict(list)
        for task in tasks:
            if task.group_s > 0:
                known[task.base_model].append(task)
        self._s_per_token = {
            base_model: (_mean_per_token(measured, training=False), _mean_per_token(measured))
            for base_model, measured in known.items()
        }

    def group_s(self, task: TaskView) -> float:
        """Rollout device-seconds of a group, and its share of the training pass."""
        tokens = max(1, task.group_cost)
        unknown = (UNKNOWN_S_PER_TOKEN, UNKNOWN_S_PER_TOKEN)
        rollout, both = self._s_per_token.get(task.base_model, unknown)
        if task.group_s <= 0:
            return tokens * both
        if task.pass_s <= 0:
            return task.group_s + tokens * (both - rollout)
        return task.group_s + task.pass_s / max(1, task.batch_size)


def remaining_s(task: TaskView) -> float:
    """How long the task needs by the clock, were it never to wait; 0 where that is not known."""
    return max(0, task.max_steps - task.version) * (task.rollout_s + task.pass_s)


def _mean_per_token(tasks: list[TaskView], training: bool = True) -> float:
    seconds = sum(t.group_s + (t.pass_s / max(1, t.batch_size) if training else 0) for t in tasks)
    return seconds / sum(max(1, task.group_cost) for task in tasks)
