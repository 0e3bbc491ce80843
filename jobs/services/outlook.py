"""What a task waits for in detail, and when it may be done: worked out when read, stored nowhere.

Reads rows, and for one task the flights in Redis; counting is in `waits`, arithmetic in
`estimates`. Of other tenants it takes sums only: the seconds that stand in a trainer's line.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from django.utils import timezone
from redis.exceptions import RedisError

from jobs.models import Group, Step, Task
from jobs.services import joins
from jobs.services.estimates import Range, start_left, step_left, task_left, told
from jobs.services.heartbeats import living_workers
from jobs.services.task_facts import Reading
from jobs.services.waits import Waiting, count_waits, sentence


@dataclass(frozen=True)
class Estimate:
    """Seconds from now; None where nobody can say yet."""

    start: Range | None = None  # of a queued task, until it may begin
    step: Range | None = None  # until its oldest live step is trained
    task: Range | None = None  # until it is over

    @property
    def text(self) -> str:
        """Step done in 40–90 s; task in 1.2–1.6 h. "" if nothing can be said."""
        if self.start:
            return f"starts in {told(self.start)}"
        if not self.step or not self.task:
            return ""
        return f"step done in {told(self.step)}; task in {told(self.task)}"


@dataclass(frozen=True)
class Outlook:
    """What a task waits for, and for how long."""

    step: int | None = None  # number of its oldest live step
    waits: list[Waiting] = field(default_factory=list)
    waiting: str = ""  # these, or what its trainer does, in a sentence
    estimate: Estimate = Estimate()


def read_outlook(task: Task) -> Outlook:
    """Everything about one task."""
    if task.state == Task.State.QUEUED:
        return Outlook(estimate=Estimate(start=_start(task)))
    if task.is_over:
        return Outlook()
    found = Reading([task])
    step = found.oldest(task)
    waits = _waits(task, step) if step and step.state == Step.State.OPEN else []
    total = task.config["batch_size"] * task.config["group_size"]
    return Outlook(
        step=step.number if step else None,
        waits=waits,
        waiting=sentence(waits, total) or _training_text(step),
        estimate=_estimate(found, task),
    )


def read_estimates(tasks: Sequence[Task]) -> dict[Any, Estimate]:
    """Of those that run, by id, for lists: in a few questions for all."""
    running = [task for task in tasks if task.state == Task.State.RUNNING]
    if not running:
        return {}
    found = Reading(running)
    return {task.pk: _estimate(found, task) for task in running}


def _estimate(found: Reading, task: Task) -> Estimate:
    """Nobody knows when a paused task is resumed."""
    if task.state != Task.State.RUNNING:
        return Estimate()
    facts = found.facts(task)
    return Estimate(step=step_left(facts), task=task_left(facts))


def _training_text(step: Step | None) -> str:
    if step is None or step.state != Step.State.TRAINING:
        return ""
    if step.training_started_at is None:
        return "the trainer has not taken the step yet"
    seconds = (timezone.now() - step.training_started_at).total_seconds()
    return f"the trainer has worked on the step for {seconds:,.0f} s"


def _start(task: Task) -> Range | None:
    """Until as many tasks of its tenant have ended as let it in; one that is paused may never."""
    own = Task.objects.filter(tenant=task.tenant_id, state__in=Task.OCCUPYING)
    running = list(own.select_related("base_model"))
    found = Reading([one for one in running if one.state == Task.State.RUNNING])
    ends = [_estimate(found, one).task for one in running]
    return start_left(ends, task.queue_position)


def _waits(task: Task, step: Step) -> list[Waiting]:
    """Without Redis nobody knows where trajectories are: then only those not sent yet."""
    groups = Group.objects.filter(step=step).values_list("pk", "attempt", "state")
    unsent = sum(state == Group.State.WAITING for _, _, state in groups)
    flying = [(str(pk), attempt) for pk, attempt, state in groups if state == "dispatched"]
    try:
        places = joins.places(flying)
    except RedisError:
        places = []
    now = timezone.now()
    kinds = living_workers().values_list("incarnation", "kind")
    kind_of = {str(incarnation): kind for incarnation, kind in kinds}
    return count_waits(places, unsent * task.config["group_size"], kind_of, now.timestamp())
