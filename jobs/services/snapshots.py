"""A whole snapshot for the planner, read from the rows in a few questions.

Thousands of groups are under way at once, and between two plans few of them change. While they are
read SQLite lets nobody write. So the groups of a step are read again only when a sum over them has
changed, and a step's view is made again only when they, the step, or what Redis said of it have.
Nothing depends on what is kept: a process that has just started reads everything.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db.models import Count, Max, Prefetch, Q, Sum
from django.utils import timezone

from engine.manager.snapshot import (
    Concurrency,
    Counters,
    GroupView,
    Snapshot,
    StepView,
    TaskView,
    TenantView,
    Whereabouts,
    WorkerView,
)
from jobs.models import BaseModel, Group, Step, Task, Tenant, TokenUsage, Worker
from jobs.services import storage, stored
from jobs.services.flights import Flights

GROUP_COLUMNS = (
    *("step_id", "pk", "index", "state", "attempt"),
    *("errors", "last_error", "dispatched_at"),
)
STEP_COLUMNS = (
    *("number", "state", "generated_by", "ready_order", "fence", "errors", "last_error"),
    *("opened_at", "dispatched_at", "holder"),
)
# Of a step's unfinished groups; no change of one that the planner would see leaves all the same.
GROUP_SUMS = {
    "num": Count("pk"),
    "num_waiting": Count("pk", filter=Q(state="waiting")),
    "places": Sum("index"),
    "attempts": Sum("attempt"),
    "failures": Sum("errors"),
    "last_dispatch": Max("dispatched_at"),
}
UNFINISHED = ("waiting", "dispatched")
_Row = tuple[Any, ...]
_Places = tuple[tuple[Whereabouts, ...], ...]


@dataclass(frozen=True)
class _Kept:
    """What was last made of a step, and what from."""

    sums: _Row  # of GROUP_SUMS; () where it has no unfinished groups
    groups: tuple[_Row, ...]  # of GROUP_COLUMNS, in order
    step: _Row  # of STEP_COLUMNS
    look: int  # number of the look at Redis
    places: _Places  # of the groups, as it says
    view: StepView


_kept: dict[int, _Kept] = {}  # by step


def take_snapshot(flights: Flights) -> Snapshot:
    """Everything the planner looks at, read inside the caller's transaction."""
    active = Task.objects.filter(state__in=Task.ACTIVE)
    locked = active.select_for_update(no_key=True).order_by("pk").values_list("pk", flat=True)
    tasks = list(
        Task.objects.filter(pk__in=list(locked))
        .select_related("base_model")
        .annotate(latest_version=Max("versions__number"))
        .prefetch_related(
            Prefetch("steps", Step.objects.filter(state__in=Step.LIVE), to_attr="live_steps"),
        )
        .order_by("submitted_at", "id")
    )
    steps = [step for task in tasks for step in task.live_steps]
    sizes = {step.pk: task.config["batch_size"] for task in tasks for step in task.live_steps}
    views = _step_views(steps, sizes, flights)
    return Snapshot(
        now=timezone.now().timestamp(),
        tenants=tuple(_tenant_views()),
        tasks=tuple(_task_view(task, views) for task in tasks),
        workers=tuple(_worker_view(w, flights) for w in Worker.objects.filter(stopped_at=None)),
        queues=flights.queues,
        concurrency=tuple(_concurrency()),
    )


def _concurrency() -> list[Concurrency]:
    kept = BaseModel.objects.exclude(concurrency={}).values_list("slug", "concurrency")
    return [concurrency_of(slug, found) for slug, found in kept]


def concurrency_of(base_model: str, kept: Any) -> Concurrency:
    """As it is kept with a base model, which is named by its slug."""
    found = stored.mapping(kept)
    counters = map(stored.mapping, stored.listing(found.get("counters")))
    return Concurrency(
        base_model=base_model,
        limit=stored.whole(found, "limit"),
        sustained=stored.number(found, "sustained"),
        preempted_at=stored.number(found, "preempted_at"),
        counters=tuple(
            Counters(
                incarnation=str(one.get("incarnation", "")),
                busy_s=stored.number(one, "busy_s"),
                sequence_s=stored.number(one, "sequence_s"),
                preemptions=stored.whole(one, "preemptions"),
            )
            for one in counters
        ),
    )


def _tenant_views() -> list[TenantView]:
    used = dict(
        TokenUsage.objects.filter(day=TokenUsage.today()).values_list("tenant_id", "tokens")
    )
    return [
        TenantView(
            id=str(tenant.pk),
            weight=tenant.weight,
            virtual_time=tenant.virtual_time,
            last_start=tenant.last_start,
            max_concurrent_tasks=tenant.max_concurrent_tasks,
            tokens_per_day=tenant.tokens_per_day,
            tokens_today=used.get(tenant.pk, 0),
            is_full=storage.is_full(tenant),
            is_suspended=tenant.is_suspended,
        )
        for tenant in Tenant.objects.filter(tasks__state__in=Task.ACTIVE).distinct()
    ]


def _step_views(steps: list[Step], sizes: dict[int, int], flights: Flights) -> dict[int, StepView]:
    """By step. sizes: groups that each has."""
    sums = _sums([step.pk for step in steps if step.state == Step.State.OPEN])
    changed = [pk for pk, row in sums.items() if pk not in _kept or _kept[pk].sums != row]
    rows = _group_rows(changed)
    made: dict[int, _Kept] = {}
    for step in steps:
        pk, before = step.pk, _kept.get(step.pk)
        own = sums.get(pk, ())
        groups = rows.get(pk, before.groups if before and own else ())
        columns = tuple(getattr(step, name) for name in STEP_COLUMNS)
        is_seen = before and (before.look, before.groups) == (flights.number, groups)
        places = before.places if before and is_seen else _places(groups, flights)
        if before and (before.groups, before.step, before.places) == (groups, columns, places):
            view = before.view
        else:
            view = _step_view(step, groups, sizes[pk], places)
        made[pk] = _Kept(own, groups, columns, flights.number, places, view)
    _kept.clear()
    _kept.update(made)
    return {pk: kept.view for pk, kept in made.items()}


def _sums(open_steps: list[int]) -> dict[int, _Row]:
    """GROUP_SUMS by step, of those that have unfinished groups."""
    unfinished = Group.objects.filter(step__in=open_steps, state__in=UNFINISHED).order_by()
    by_step = unfinished.values("step_id").annotate(**GROUP_SUMS)
    return {pk: tuple(row) for pk, *row in by_step.values_list("step_id", *GROUP_SUMS)}


def _group_rows(steps: list[int]) -> dict[int, tuple[_Row, ...]]:
    """The unfinished groups of these steps, in order."""
    found: dict[int, list[_Row]] = defaultdict(list)
    if steps:
        unfinished = Group.objects.filter(step__in=steps, state__in=UNFINISHED)
        for row in unfinished.order_by("index").values_list(*GROUP_COLUMNS):
            found[row[0]].append(row)
    return {step: tuple(rows) for step, rows in found.items()}


def _places(groups: tuple[_Row, ...], flights: Flights) -> _Places:
    """Where each of the groups is; most are where they were at the last look."""
    found = flights.places
    return tuple([found.get((str(pk), attempt), ()) for _, pk, _, _, attempt, *_ in groups])


def _group_view(row: _Row, whereabouts: tuple[Whereabouts, ...]) -> GroupView:
    _, pk, index, state, attempt, errors, last_error, dispatched_at = row
    return GroupView(
        id=str(pk),
        index=index,
        state=state,
        attempt=attempt,
        errors=errors,
        last_error=last_error,
        dispatched_at=_epoch(dispatched_at),
        whereabouts=whereabouts,
    )


def _epoch(moment: datetime | None) -> float:
    return moment.timestamp() if moment else 0.0


def _task_view(task: Any, views: dict[int, StepView]) -> TaskView:
    """task: a Task with what `take_snapshot` adds to it, live_steps and latest_version."""
    config = task.config
    is_prepared = bool(task.prompts_key) and task.latest_version is not None
    return TaskView(
        id=str(task.pk),
        tenant=str(task.tenant_id),
        base_model=task.base_model.slug,
        state=task.state,
        submitted_at=task.submitted_at.timestamp(),
        max_steps=config["max_steps"],
        batch_size=config["batch_size"],
        group_size=config["group_size"],
        group_cost=_group_cost(task),
        group_kv=_group_kv(task),
        version=task.latest_version if is_prepared else -1,
        prepare_sent_at=_epoch(task.prepare_sent_at),
        prepare_error=task.prepare_error,
        steps=tuple(views[step.pk] for step in task.live_steps),
        max_staleness=config["max_staleness"],
        priority=task.priority,
        virtual_time=task.virtual_time,
        last_start=task.last_start,
        group_s=task.group_s,
        pass_s=task.pass_s,
        rollout_s=task.rollout_s,
        phase=task.phase,
        reason=task.reason,
        queue_position=task.queue_position,
    )


def _group_cost(task: Task) -> int:
    """Tokens that a group costs: as measured, or half of what it may at most before that."""
    if task.mean_group_tokens:
        return max(1, round(task.mean_group_tokens))
    return max(1, task.config["group_size"] * task.config["max_completion_length"] // 2)


def _group_kv(task: Task) -> int:
    """Tokens of KV that a group may be expected to fill: as measured, or all it may before that."""
    if task.mean_group_tokens:
        return max(1, round(task.mean_group_tokens))
    config = task.config
    longest = config["max_prompt_length"] + config["group_size"] * config["max_completion_length"]
    return max(1, longest)


def _step_view(step: Step, rows: tuple[_Row, ...], size: int, places: _Places) -> StepView:
    """size: groups that a step of its task has."""
    return StepView(
        number=step.number,
        state=step.state,
        groups=tuple(map(_group_view, rows, places)),
        num_finished=size - len(rows) if step.state == Step.State.OPEN else 0,
        version=step.generated_by,
        ready_order=step.ready_order,
        fence=step.fence,
        errors=step.errors,
        last_error=step.last_error,
        opened_at=step.opened_at.timestamp(),
        dispatched_at=_epoch(step.dispatched_at),
        holder=step.holder,
    )


def _worker_view(worker: Worker, flights: Flights) -> WorkerView:
    stats = stored.mapping(worker.stats)
    return WorkerView(
        incarnation=str(worker.pk),
        name=worker.name,
        kind=worker.kind,
        base_models=tuple(map(str, stored.listing(worker.base_models))),
        started_at=worker.started_at.timestamp(),
        last_beat_at=worker.last_beat_at.timestamp(),
        pulse_at=flights.pulses.get(str(worker.pk), 0.0),
        slots=worker.slots,
        kv_tokens=stored.whole(stats, "kv_tokens"),
        kv_tokens_free=stored.whole(stats, "kv_tokens_free"),
        adapter_slots=stored.whole(stats, "adapter_slots"),
        tokens_per_s=stored.number(stats, "tokens_per_s"),
        num_running=stored.whole(stats, "num_running"),
        busy_s=stored.number(stats, "busy_s"),
        sequence_s=stored.number(stats, "sequence_s"),
        preemptions=stored.whole(stats, "preemptions"),
    )
