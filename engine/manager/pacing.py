"""Steps begin no earlier than the trainer can use them.

A trainer that is the bottleneck takes steps at its own pace, and whatever is generated beyond that
waits in its line: nobody gains, first steps come later because everybody generates at once, and the
line is first in first out, so that it, and not the tenants' weights, would decide who is served.

By Little's law a trainer is kept busy by steps under way whose loads add up to one, where a step's
load is the seconds of its pass by those of its rollout. So much, and two fifths more because
rollouts vary, and a pass that waits, may be under way; the next step that begins beyond that is
chosen when a pass ends, in fair order: whoever is next and may not begin keeps back all who come
after. Where rollout is the bottleneck the bound is out of reach. Steps of tasks that may not go on,
since they are paused or their tenant is suspended, do not come to the trainer either, and hold back
nobody.

A tenant whose tasks need less than its share of the trainers until the one with furthest to go is
done, were that never to wait, gains little if the others are through early: they would only stand
in its way in the line. So the others do with less, down to a load of one, and those with furthest
to go need not wait for them. Tenants take their turns as ever: what one of its tasks gives up,
another of its own gets.

Costs of a task that has none yet are those of others. Where nobody's are known, because all is new,
a few steps begin, and one more every few seconds, until the first pass has told.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

from .fairness import MIN_WEIGHT
from .snapshot import StepView, TaskView
from .world import World

# Both slacks were chosen by means over five seeds of the paper's mix, as it is and with passes
# twice as long (benchmarks/simulated).
SLACK = 1.4  # load of a trainer; and so many passes that wait
PASSES_WAITING = 1
UNHURRIED_SLACK = 1.2  # times their need, for tasks that others of their tenant will outlast
LEAST_SLACK = 1.0
FURTHEST = 0.9  # of the longest time that a task still needs: as good as that, for estimates err
FIRST_STEPS = 8  # for each trainer, before any costs are known
FIRST_STEP_EVERY_S = 5.0
PACED = "the trainer has enough steps before it"
LETS_PASS = f"{PACED}; your tasks with furthest to go are let past"


@dataclass(frozen=True)
class _Unhurried:
    """A tenant that is not short of training."""

    furthest_s: float  # the longest time that a task of it still needs
    slack: float  # for the others


class Pace:
    """The load of the trainers of a base model, while a plan is made."""

    def __init__(self, world: World, base_model: str) -> None:
        tasks = [task for task in world.tasks if task.base_model == base_model]
        self._costs, self._now = world.costs, world.snapshot.now
        self._num_trainers = len(world.workers("training", base_model)) if world.policy.paces else 0
        self._load = 0.0
        self._largest_load = 0.0  # of a step
        self._begun: set[tuple[str, int]] = set()
        self._began_at = world.snapshot.now  # the first of them
        self._held_tenant: str | None = None  # the first that was to wait
        self._unhurried = _unhurried(world, tasks, self._num_trainers)
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
        load = self._costs.load(task)
        self._load += load
        self._largest_load = max(self._largest_load, load)

    def lack(self, task: TaskView, step: StepView) -> str:
        """Why the step is not to begin yet; "" if it may. To be asked of steps in fair order. A
        step once begun is never held back."""
        if not self._num_trainers or (task.id, step.number) in self._begun:
            return ""
        hurries = self._hurries(task)
        reason = LETS_PASS if task.tenant in self._unhurried and not hurries else PACED
        if self._held_tenant is not None and not (hurries and self._held_tenant == task.tenant):
            return reason
        if not self._is_full(task, hurries):
            return ""
        self._held_tenant = task.tenant
        return reason

    def _hurries(self, task: TaskView) -> bool:
        """Whether the task is one of those that its tenant's others need not stand before."""
        found = self._unhurried.get(task.tenant)
        if found is None or not task.rollout_s:  # a new one looks like any other
            return False
        # Two that go side by side may be a step apart at any time.
        remaining_s = self._costs.remaining_s(task) + self._costs.step_s(task)
        return remaining_s >= FURTHEST * found.furthest_s

    def _is_full(self, task: TaskView, hurries: bool) -> bool:
        """Whether a step of the task would be one too many."""
        load = self._costs.load(task)
        if not load:
            more = abs(self._now - self._began_at) // FIRST_STEP_EVERY_S
            return len(self._begun) >= FIRST_STEPS * self._num_trainers + more
        found = self._unhurried.get(task.tenant)
        slack = found.slack if found and not hurries else SLACK
        waiting = PASSES_WAITING * max(self._largest_load, load)
        return self._load > (slack + waiting) * self._num_trainers


def _unhurried(world: World, tasks: list[TaskView], num_trainers: int) -> dict[str, _Unhurried]:
    """By tenant. num_trainers: that the tenants share by weight."""
    by_tenant: dict[str, list[TaskView]] = defaultdict(list)
    for task in tasks:
        if world.may_start(task):
            by_tenant[task.tenant].append(task)
    weights = {tenant: max(world.tenants[tenant].weight, MIN_WEIGHT) for tenant in by_tenant}
    found: dict[str, _Unhurried] = {}
    for tenant, own in by_tenant.items():
        share = num_trainers * weights[tenant] / sum(weights.values())
        left_s = sum(map(world.costs.training_left_s, own))
        furthest_s = max(map(world.costs.remaining_s, own))
        slack = UNHURRIED_SLACK * left_s / (share * furthest_s) if share * furthest_s else SLACK
        if slack < SLACK:
            found[tenant] = _Unhurried(furthest_s, max(LEAST_SLACK, slack))
    return found
