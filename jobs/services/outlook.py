"""What a task waits for in detail, and when it may be done: worked out when read, stored nowhere.

Reads rows, and for one task the flights in Redis; counting is in `waits`, arithmetic in
`estimates`. Of other tenants it takes sums only: the seconds that stand in a trainer's line.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from django.utils import timezone
from redis.exceptions import RedisError

from jobs.models import Group, Step, Task
from jobs.services import joins
from jobs.services.estimates import (
    NEVER,
    NOBODY,
    SOME_DAY,
    Range,
    start_left,
    step_left,
    task_left,
    told,
    told_when,
    why_no_task,
)
from jobs.services.heartbeats import living_workers
from jobs.services.task_facts import Reading
from jobs.services.waits import Waiting, count_waits, sentence

UNKNOWN_TIME = "time not known"
NOT_SEEN = "the planner has not looked at it yet"


@dataclass(frozen=True)
class Estimate:
    """Seconds from now; None where nobody can say."""

    start: Range | None = None  # of a queued task, until it may begin
    step: Range | None = None  # until its oldest live step is trained
    task: Range | None = None  # until it is over
    unknown: str = ""  # why one that could be expected is None, as a sentence; "" if none is

    @property
    def text(self) -> str:
        """Step done in 40–90 s; task in 1.2–1.6 h. Or why nobody can say. "" once it is over."""
        if self.start:
            return f"starts {told_when(self.start)}"
        if not self.step:
            return self.unknown
        step = f"step done {told_when(self.step)}"
        if not self.task:
            return f"{step}; of the whole task, {self.unknown}"
        return f"{step}; task {told_when(self.task)}"

    @property
    def brief(self) -> str:
        """Of the whole task, for a narrow cell: 1.2–1.6 h left; starts in 40–90 s."""
        if self.start:
            return self.text
        if self.task:
            return f"{told(self.task)} left"
        return UNKNOWN_TIME if self.unknown else ""


@dataclass(frozen=True)
class Outlook:
    """What a task waits for, and for how long."""

    step: int | None = None  # number of its oldest live step
    waits: list[Waiting] = field(default_factory=list)
    waiting: str = ""  # these, or what its trainer does, in a sentence
    estimate: Estimate = Estimate()


def read_outlook(task: Task) -> Outlook:
    """Everything about one task."""
    if task.is_over:
        return Outlook()
    if task.state == Task.State.QUEUED:
        return Outlook(estimate=read_estimates([task])[task.pk])
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
    """Of those that are not over, by id, for lists: in a few questions for all."""
    active = [task for task in tasks if not task.is_over]
    queued = [task for task in active if task.state == Task.State.QUEUED]
    before = _occupying({task.tenant_id for task in queued})
    if not active:
        return {}
    found = Reading([*{task.pk: task for task in [*active, *before]}.values()])
    ends = _ends(found, before)
    return {
        task.pk: _start(found, task, ends[task.tenant_id])
        if task.state == Task.State.QUEUED
        else _estimate(found, task)
        for task in active
    }


def _estimate(found: Reading, task: Task) -> Estimate:
    """Nobody knows when a paused task is resumed."""
    if task.state != Task.State.RUNNING:
        return Estimate(unknown=f"{NOBODY}the task is paused")
    facts = found.facts(task)
    return Estimate(step=step_left(facts), task=task_left(facts), unknown=why_no_task(facts))


def _occupying(tenant_ids: set[Any]) -> list[Task]:
    """Tasks whose ends let in those that these tenants have queued."""
    if not tenant_ids:
        return []
    rows = Task.objects.filter(tenant__in=tenant_ids, state__in=Task.OCCUPYING)
    return list(rows.select_related("base_model"))


def _ends(found: Reading, tasks: Sequence[Task]) -> dict[Any, list[Range]]:
    """When each ends, by tenant. One that is paused never does, as far as anybody knows."""
    ends: dict[Any, list[Range]] = defaultdict(list)
    for task in tasks:
        is_running = task.state == Task.State.RUNNING
        unknown = SOME_DAY if is_running else NEVER
        ends[task.tenant_id].append((is_running and _estimate(found, task).task) or unknown)
    return ends


def _start(found: Reading, task: Task, ends: Sequence[Range]) -> Estimate:
    """Of a queued task: until as many tasks of its tenant have ended as let it in."""
    if bar := found.bars.admission(task):
        return Estimate(unknown=f"{NOBODY}{bar}")
    if not task.queue_position:
        why = "more of your tasks go before it than are counted" if task.reason else NOT_SEEN
        return Estimate(unknown=f"{NOBODY}{why}")
    limit = found.bars.max_concurrent_tasks(task)
    surplus = max(0, len(ends) - limit) if limit else 0  # were more let in than may run now
    start = start_left(ends, task.queue_position + surplus)
    if start:
        return Estimate(start=start)
    num = sum(end == NEVER for end in ends)
    why = f", of which {num} {'is' if num == 1 else 'are'} paused" if num else ""
    return Estimate(unknown=f"{NOBODY}it waits for the end of your tasks{why}")


def _training_text(step: Step | None) -> str:
    if step is None or step.state != Step.State.TRAINING:
        return ""
    if step.training_started_at is None:
        return "the trainer has not taken the step yet"
    seconds = (timezone.now() - step.training_started_at).total_seconds()
    return f"the trainer has worked on the step for {seconds:,.0f} s"


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
    kind_of = {str(worker.pk): worker.kind for worker in living_workers()}
    return count_waits(places, unsent * task.config["group_size"], kind_of, now.timestamp())
