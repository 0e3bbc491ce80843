"""Steps begin no earlier than the trainer can use them.

A trainer that is the bottleneck takes steps at its own pace, and whatever is generated beyond that
waits in its line: nobody gains, first steps come later because everybody generates at once, and the
line is first in first out, so that it, and not the tenants' weights, would decide who is served.

By Little's law a trainer is kept busy if the steps under way hold as many seconds of training as
their rollout takes by the clock. So much, and half as much again because rollouts vary, and two
passes that wait, may be under way; the next step that begins beyond that is chosen when a pass
ends, in fair order. Where rollout is the bottleneck the bound is out of reach.

Under a policy that lets tasks finish together, those with furthest to go are never held back, and
the others sooner, if all that is left to train takes less time than the furthest has to go: ending
early, they would only have stood in its way at the engines and in the line.
"""

from __future__ import annotations

from .costs import remaining_s
from .snapshot import StepView, TaskView
from .world import World

SLACK = 1.5  # times the rollout's length; and so many passes that wait
PASSES_WAITING = 2
TIGHT_SLACK = 0.7  # for tasks that need not hurry
TIGHT_PASSES_WAITING = 1
FURTHEST = 0.85  # of the longest time that a task still needs: as good as that, for estimates err
PACED = "the trainer has enough steps before it"


class Pace:
    """Seconds of training under way for the trainers of a base model, while a plan is made."""

    def __init__(self, world: World, base_model: str) -> None:
        tasks = [task for task in world.tasks if task.base_model == base_model]
        self._num_trainers = len(world.workers("training", base_model)) if world.policy.paces else 0
        self._furthest_s = 0.0
        self._is_tight = False
        if world.policy.finish_together:
            going_on = [task for task in tasks if world.may_start(task)]
            self._furthest_s = max(map(remaining_s, going_on), default=0.0)
            left_s = sum((task.max_steps - task.version) * task.pass_s for task in going_on)
            self._is_tight = left_s < self._furthest_s * self._num_trainers
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
        is_begun = (task.id, step.number) in self._begun
        if not self._num_trainers or task.pass_s <= 0 or is_begun or self._is_furthest(task):
            return False
        slack = TIGHT_SLACK if self._is_tight else SLACK
        passes_waiting = TIGHT_PASSES_WAITING if self._is_tight else PASSES_WAITING
        under_way_s = self._under_way_s + task.pass_s
        latency_s = (self._weighted_latency + task.pass_s * task.rollout_s) / under_way_s
        waiting_s = passes_waiting * max(self._longest_pass_s, task.pass_s)
        return self._under_way_s > (slack * latency_s + waiting_s) * self._num_trainers

    def _is_furthest(self, task: TaskView) -> bool:
        return 0 < FURTHEST * self._furthest_s <= remaining_s(task)
