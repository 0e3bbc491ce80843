"""Steps begin no earlier than the trainer can use them.

A trainer that is the bottleneck takes steps at its own pace, and whatever is generated beyond that
waits in its line: nobody gains, first steps come later because everybody generates at once, and the
line is first in first out, so that it, and not the tenants' weights, would decide who is served.

By Little's law a trainer is kept busy if the steps under way hold as many seconds of training as
their rollout takes by the clock. So much, and half as much again because rollouts vary, and two
passes that wait, may be under way; the next step that begins beyond that is chosen when a pass
ends, in fair order. Where rollout is the bottleneck the bound is out of reach.
"""

from __future__ import annotations

from .policy import Policy
from .snapshot import StepView, TaskView
from .world import World

SLACK = 1.5
PASSES_WAITING = 2
PACED = "the trainer has enough steps before it"


class Pace:
    """Seconds of training under way for the trainers of a base model, while a plan is made."""

    def __init__(self, world: World, base_model: str) -> None:
        policy: Policy = world.policy
        trainers = len(world.workers("training", base_model))
        self._num_trainers = trainers if policy.paces else 0
        self._under_way_s = 0.0
        self._weighted_latency = 0.0  # of the steps begun, by their seconds of training
        self._longest_pass_s = 0.0
        self._begun: set[tuple[str, int]] = set()
        for task in world.tasks:
            for step in task.steps if task.base_model == base_model else ():
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
        if not self._num_trainers or task.pass_s <= 0 or (task.id, step.number) in self._begun:
            return False
        under_way_s = self._under_way_s + task.pass_s
        latency_s = (self._weighted_latency + task.pass_s * task.rollout_s) / under_way_s
        waiting_s = PASSES_WAITING * max(self._longest_pass_s, task.pass_s)
        bound_s = SLACK * latency_s + waiting_s
        return self._under_way_s > bound_s * self._num_trainers
