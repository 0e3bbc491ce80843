"""Steps begin no earlier than the trainer can use them.

A trainer that is the bottleneck takes steps at its own pace, and whatever is generated beyond that
waits in its line: nobody gains, first steps come later because everybody generates at once, and the
line is first in first out, so that it, and not the tenants' weights, would decide who is served.

By Little's law a trainer is kept busy if the steps under way hold as many seconds of training as
their rollout takes by the clock. So much, and half as much again because rollouts vary, and two
passes that wait, may be under way; the next step that begins beyond that is chosen when a pass
ends, in fair order. Where rollout is the bottleneck the bound is out of reach.

Under a policy that lets tasks finish together, the task with furthest to go is never held back, and
each other one lets the time that it has to spare pass evenly, before each of its steps: ending
early, it would only have stood in the other's way at the engines and in the line.
"""

from __future__ import annotations

from .costs import remaining_s
from .snapshot import StepView, TaskView
from .world import World

SLACK = 1.5
PASSES_WAITING = 2
SPREAD = 0.9  # of the time that a task has to spare; estimates err
PACED = "the trainer has enough steps before it"


class Pace:
    """Seconds of training under way for the trainers of a base model, while a plan is made."""

    def __init__(self, world: World, base_model: str) -> None:
        tasks = [task for task in world.tasks if task.base_model == base_model]
        self._now = world.snapshot.now
        self._num_trainers = len(world.workers("training", base_model)) if world.policy.paces else 0
        self._furthest_s = 0.0
        if world.policy.finish_together:
            goes_on = (task for task in tasks if world.may_start(task))
            self._furthest_s = max((remaining_s(task) for task in goes_on), default=0.0)
        self._under_way_s = 0.0
        self._weighted_latency = 0.0  # of the steps begun, by their seconds of training
        self._longest_pass_s = 0.0
        self._begun: set[tuple[str, int]] = set()
        for task in tasks:
            for step in task.steps:
                if step.state != "open" or step.num_finished or step.dispatched:
                    self.begin(task, step)

    def begin(self, task: TaskView, step: StepView) -> None:
        """Count the step, once."""
        if (task.id, step.number) in self._begun:
            return
        self._begun.add((task.id, step.number))
        self._under_way_s += task.pass_s
        self._weighted_latency += task.pass_s * task.rollout_s
        self._longest_pass_s = max(self._longest_pass_s, task.pass_s)

    def holds_back(self, task: TaskView, step: StepView) -> bool:
        """Whether the step is not to begin yet. A step once begun is never held back, nor is one
        of a task whose costs are not known."""
        if task.pass_s <= 0 or (task.id, step.number) in self._begun:
            return False
        return self._is_early(task, step) or self._has_enough(task)

    def _is_early(self, task: TaskView, step: StepView) -> bool:
        """Whether the task has time to spare before this step."""
        steps_left = max(1, task.max_steps - task.version)
        spare_s = SPREAD * (self._furthest_s - remaining_s(task)) / steps_left
        return abs(self._now - step.opened_at) < spare_s

    def _has_enough(self, task: TaskView) -> bool:
        """Whether the trainers have enough under way without the task's step."""
        if not self._num_trainers:
            return False
        under_way_s = self._under_way_s + task.pass_s
        latency_s = (self._weighted_latency + task.pass_s * task.rollout_s) / under_way_s
        waiting_s = PASSES_WAITING * max(self._longest_pass_s, task.pass_s)
        bound_s = SLACK * latency_s + waiting_s
        return self._under_way_s > bound_s * self._num_trainers
