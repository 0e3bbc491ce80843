"""Steps begin no earlier than the trainer can use them.

A trainer that is the bottleneck takes steps at its own pace, and whatever is generated beyond that
waits in its line: nobody gains, first steps come later because everybody generates at once, and the
line is first in first out, so that it, and not the tenants' weights, would decide who is served.

By Little's law a trainer is kept busy if the steps under way hold as many seconds of training as
their rollout takes by the clock. So much, and a quarter more because rollouts vary, and a pass that
waits, may be under way; the next step that begins beyond that is chosen when a pass ends, in fair
order: whoever is next and may not begin keeps back all who come after. Where rollout is the
bottleneck the bound is out of reach. Steps of tasks that may not go on, since they are paused or
their tenant is suspended, do not come to the trainer either, and hold back nobody.

Under a policy that lets tasks finish together, those with furthest to go are never held back, and
the others sooner, if all that is left to train takes less time than the furthest has to go: ending
early, they would only have stood in its way at the engines and in the line.

Costs of a task that has none yet are those of others. Where nobody's are known, because all is new,
a few steps begin, and one more every few seconds, until the first pass has told.
"""

from __future__ import annotations

from .snapshot import StepView, TaskView
from .world import World

SLACK = 1.25  # times the rollout's length; and so many passes that wait
PASSES_WAITING = 1
TIGHT_SLACK = 0.7  # for tasks that need not hurry
FURTHEST = 0.85  # of the longest time that a task still needs: as good as that, for estimates err
FIRST_STEPS = 8  # for each trainer, before any costs are known
FIRST_STEP_EVERY_S = 5.0
PACED = "the trainer has enough steps before it"


class Pace:
    """Seconds of training under way for the trainers of a base model, while a plan is made."""

    def __init__(self, world: World, base_model: str) -> None:
        tasks = [task for task in world.tasks if task.base_model == base_model]
        self._costs, self._now = world.costs, world.snapshot.now
        self._num_trainers = len(world.workers("training", base_model)) if world.policy.paces else 0
        self._furthest_s = 0.0
        self._is_tight = False
        if world.policy.finish_together:
            going_on = [task for task in tasks if world.may_start(task)]
            self._furthest_s = max(map(self._costs.remaining_s, going_on), default=0.0)
            left_s = sum((t.max_steps - t.version) * self._costs.pass_s(t) for t in going_on)
            self._is_tight = left_s < self._furthest_s * self._num_trainers
        self._is_full = False
        self._under_way_s = 0.0
        self._weighted_latency = 0.0  # of the steps begun, by their seconds of training
        self._longest_pass_s = 0.0
        self._begun: set[tuple[str, int]] = set()
        self._began_at = world.snapshot.now  # the first of them
        for task in tasks:
            for step in task.steps:
                if step.state == "training" or (world.may_start(task) and step.is_begun):
                    self.begin(task, step)

    def begin(self, task: TaskView, step: StepView) -> None:
        """Count the step, once."""
        if (task.id, step.number) in self._begun:
            return
        self._begun.add((task.id, step.number))
        self._began_at = min(self._began_at, step.opened_at)
        pass_s = self._costs.pass_s(task)
        self._under_way_s += pass_s
        self._weighted_latency += pass_s * self._costs.rollout_s(task)
        self._longest_pass_s = max(self._longest_pass_s, pass_s)

    def holds_back(self, task: TaskView, step: StepView) -> bool:
        """Whether the step is not to begin yet; to be asked of steps in fair order. A step once
        begun is never held back."""
        is_begun = (task.id, step.number) in self._begun
        if not self._num_trainers or is_begun or self._is_furthest(task):
            return False
        if self._is_full:
            return True
        pass_s = self._costs.pass_s(task)
        if not pass_s:
            more = abs(self._now - self._began_at) // FIRST_STEP_EVERY_S
            self._is_full = len(self._begun) >= FIRST_STEPS * self._num_trainers + more
            return self._is_full
        slack = TIGHT_SLACK if self._is_tight else SLACK
        under_way_s = self._under_way_s + pass_s
        latency_s = (self._weighted_latency + pass_s * self._costs.rollout_s(task)) / under_way_s
        waiting_s = PASSES_WAITING * max(self._longest_pass_s, pass_s)
        self._is_full = self._under_way_s > (slack * latency_s + waiting_s) * self._num_trainers
        return self._is_full

    def _is_furthest(self, task: TaskView) -> bool:
        return 0 < FURTHEST * self._furthest_s <= self._costs.remaining_s(task)
