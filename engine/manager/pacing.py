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

A tenant whose tasks need no more than its share of the trainers until the one with furthest to go
is done, were that never to wait, gains little if the others are through early: they would only
stand in its way in the line. So where trainers are busy anyway, the others begin with less of the
tenant's own under way, down to its share. That holds back nobody else, and takes no turn from any
other tenant.

Costs of a task that has none yet are those of others. Where nobody's are known, because all is new,
a few steps begin, and one more every few seconds, until the first pass has told.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

from .costs import Costs
from .fairness import MIN_WEIGHT
from .priority import aged_priority
from .snapshot import StepView, TaskView
from .world import World

# Both slacks were chosen by means over five seeds of the paper's mix, as it is and with passes
# twice as long (benchmarks/simulated).
SLACK = 1.4  # load of a trainer; and so many passes that wait
PASSES_WAITING = 1
UNHURRIED_SLACK = 1.2  # times a tenant's need, for tasks that others of it will outlast
LEAST_SLACK = 1.0  # for these, by the tenant's share
FURTHEST = 0.9  # of the longest time that a task still needs: as good as that, for estimates err
FIRST_STEPS = 8  # for each trainer, before any costs are known
FIRST_STEP_EVERY_S = 5.0
PACED = "the trainer has enough steps before it"
LETS_PASS = f"{PACED}; your tasks with furthest to go are let past"


@dataclass(frozen=True)
class _Unhurried:
    """A tenant that is not short of training."""

    furthest_s: float  # the longest time that a task of it still needs
    priority: int  # the highest of those with furthest to go
    load: float  # of its own that may be under way where one of the others begins; and a pass
    share: float  # of the trainers, in trainers


class Pace:
    """The load of the trainers of a base model, while a plan is made."""

    def __init__(self, world: World, base_model: str) -> None:
        tasks = world.by_base_model.get(base_model, [])
        self._costs, self._now = world.costs, world.snapshot.now
        self._num_trainers = len(world.workers("training", base_model)) if world.policy.paces else 0
        self.is_full = False  # the trainers have enough: whoever comes after is held back too
        self._load = 0.0
        self._tenant_loads: dict[str, float] = defaultdict(float)
        self._largest_load = 0.0  # of a step
        self._begun: set[tuple[str, int]] = set()
        self._began_at = world.snapshot.now  # the first of them
        self._unhurried = _unhurried(world, tasks, self._num_trainers)
        for task in tasks:
            for step in task.steps:
                if step.state == "training" or (world.may_start(task) and step.is_begun):
                    self.begin(task, step)

    def begin(self, task: TaskView, step: StepView) -> None:
        """Count the step, once."""
        begun = task.id, step.number
        if begun in self._begun:
            return
        self._begun.add(begun)
        self._began_at = min(self._began_at, step.opened_at)
        load = self._costs.load(task)
        self._load += load
        self._tenant_loads[task.tenant] += load
        self._largest_load = max(self._largest_load, load)

    def lack(self, task: TaskView, step: StepView) -> str:
        """Why the step is not to begin yet; "" if it may. To be asked of steps in fair order. A
        step once begun is never held back."""
        if not self._num_trainers or (task.id, step.number) in self._begun:
            return ""
        tenant = self._outlasting(task, step)
        if tenant is not None and self._has_its_share(task, tenant):
            return LETS_PASS
        self.is_full = self.is_full or self._has_enough(task)
        if not self.is_full:
            return ""
        return PACED if tenant is None else LETS_PASS

    def _outlasting(self, task: TaskView, step: StepView) -> _Unhurried | None:
        """The task's tenant, if others of it go on for longer and are to be let past. Those of
        lower priority, be it that the step has waited, are not."""
        found = self._unhurried.get(task.tenant)
        if found is None or _is_furthest(self._costs, task, found.furthest_s):
            return None
        return found if aged_priority(task, step, self._now) <= found.priority else None

    def _has_its_share(self, task: TaskView, tenant: _Unhurried) -> bool:
        """Whether enough is under way for one that lets others of its tenant pass. Nobody does
        while a trainer could use more."""
        waiting = self._waiting_load(task)
        if self._load <= (LEAST_SLACK + waiting) * self._num_trainers:
            return False
        return self._tenant_loads[task.tenant] > tenant.load + waiting * max(1.0, tenant.share)

    def _has_enough(self, task: TaskView) -> bool:
        """Whether a step of the task would be one too many for the trainers."""
        if not self._costs.load(task):
            more = abs(self._now - self._began_at) // FIRST_STEP_EVERY_S
            return len(self._begun) >= FIRST_STEPS * self._num_trainers + more
        per_trainer = SLACK + self._waiting_load(task)
        return self._load > per_trainer * self._num_trainers

    def _waiting_load(self, task: TaskView) -> float:
        """Of passes that may wait for each trainer besides."""
        return PASSES_WAITING * max(self._largest_load, self._costs.load(task))


def _unhurried(world: World, tasks: list[TaskView], num_trainers: int) -> dict[str, _Unhurried]:
    """By tenant. num_trainers: that the tenants share by weight."""
    by_tenant: dict[str, list[TaskView]] = defaultdict(list)
    for task in tasks:
        if world.may_start(task):
            by_tenant[task.tenant].append(task)
    weights = {tenant: max(world.tenants[tenant].weight, MIN_WEIGHT) for tenant in by_tenant}
    all_weights = sum(weights.values())
    found: dict[str, _Unhurried] = {}
    for tenant, own in by_tenant.items():
        share = num_trainers * weights[tenant] / all_weights
        left_s = sum(map(world.costs.training_left_s, own))
        furthest_s = max(map(world.costs.remaining_s, own))
        needed = left_s / furthest_s if furthest_s else share  # trainers
        load = max(LEAST_SLACK * share, UNHURRIED_SLACK * needed)
        if load >= SLACK * share:
            continue
        furthest = [task for task in own if _is_furthest(world.costs, task, furthest_s)]
        if furthest:
            priority = max(task.priority for task in furthest)
            found[tenant] = _Unhurried(furthest_s, priority, load, share)
    return found


def _is_furthest(costs: Costs, task: TaskView, furthest_s: float) -> bool:
    """Whether it is known to have about as far to go. Two that go side by side may be a step apart
    at any time."""
    is_known = task.rollout_s > 0  # a new one looks like any other
    return is_known and costs.remaining_s(task) + costs.step_s(task) >= FURTHEST * furthest_s
