"""Runs the pure planner on what is, and persists what it decides.

`plan_once` takes the planner's lock and those of all tasks, reads a whole snapshot, and applies
each command by a conditional update; stage calls leave on commit. A planner that dies in between
loses at most stage calls, which the leases notice. Redis is never asked while locks are held: a
queue server that hangs must not hold up pages and heartbeats.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import asdict
from datetime import datetime
from functools import partial
from typing import Any

from django.conf import settings
from django.db import InterfaceError, OperationalError, transaction
from django.db.models import Max, Prefetch
from django.utils import timezone

from engine.manager import plan
from engine.manager.policy import POLICIES
from engine.manager.snapshot import (
    Admit,
    Command,
    Concurrency,
    DispatchGroup,
    DispatchTraining,
    End,
    Explain,
    GroupView,
    OpenStep,
    Prepare,
    SetConcurrency,
    Snapshot,
    StepView,
    TaskView,
    TenantView,
    WorkerView,
)
from engine.prompt_order import batch_rows
from jobs.models import (
    BaseModel,
    Group,
    PolicyVersion,
    Span,
    Step,
    Task,
    Tenant,
    TokenUsage,
    Worker,
)
from jobs.services import dispatch, events, storage
from jobs.services.failures import told
from jobs.services.flights import Flights, look_at_flights
from jobs.services.lifecycle import announce, end_task, log_event, move_task

MAX_COMMANDS = 100  # of one plan, about a second of the database's one writer; the next goes on
log = logging.getLogger(__name__)


def plan_once() -> int:
    """One look and its consequences; returns the number of commands."""
    flights = look_at_flights()
    with transaction.atomic():
        events.lock_head("planner")
        policy = POLICIES[settings.SCHEDULE_POLICY]
        commands = plan(take_snapshot(flights), policy)[:MAX_COMMANDS]
        for command in commands:
            _apply(command)
    return len(commands)


def _apply(command: Command) -> None:
    """Carry a command out; one that cannot be ends its task, or it would end every plan."""
    try:
        with transaction.atomic():
            APPLY[type(command)](command)
    except (OperationalError, InterfaceError):
        raise
    except Exception as error:
        log.exception("%s could not be carried out", command)
        end_task(command.task, Task.State.FAILED, told(error), from_states=Task.ACTIVE)


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
    groups = _group_views([step for task in tasks for step in task.live_steps], flights)
    return Snapshot(
        now=timezone.now().timestamp(),
        tenants=tuple(_tenant_views()),
        tasks=tuple(_task_view(task, groups) for task in tasks),
        workers=tuple(_worker_view(w) for w in Worker.objects.filter(stopped_at=None)),
        queues=flights.queues,
        concurrency=tuple(_concurrency()),
    )


def _concurrency() -> list[Concurrency]:
    kept = BaseModel.objects.exclude(concurrency={}).values_list("concurrency", flat=True)
    return [Concurrency(**{**found, "speeds": tuple(found["speeds"])}) for found in kept]


def _tenant_views() -> list[TenantView]:
    used = dict(
        TokenUsage.objects.filter(day=TokenUsage.today()).values_list("tenant_id", "tokens")
    )
    return [
        TenantView(
            id=str(tenant.pk),
            weight=tenant.weight,
            virtual_time=tenant.virtual_time,
            max_concurrent_tasks=tenant.max_concurrent_tasks,
            tokens_per_day=tenant.tokens_per_day,
            tokens_today=used.get(tenant.pk, 0),
            is_full=storage.is_full(tenant),
            is_suspended=tenant.is_suspended,
        )
        for tenant in Tenant.objects.filter(tasks__state__in=Task.ACTIVE).distinct()
    ]


def _group_views(steps: list[Step], flights: Flights) -> dict[int, tuple[GroupView, ...]]:
    """Views of the groups of open steps, by step."""
    open_steps = [step for step in steps if step.state == Step.State.OPEN]
    unfinished = Group.objects.filter(step__in=open_steps, state__in=["waiting", "dispatched"])
    groups = list(unfinished.order_by("index"))
    views: dict[int, tuple[GroupView, ...]] = {}
    for group in groups:
        view = GroupView(
            id=str(group.pk),
            index=group.index,
            state=group.state,
            attempt=group.attempt,
            errors=group.errors,
            last_error=group.last_error,
            dispatched_at=_epoch(group.dispatched_at),
            whereabouts=flights.places.get((str(group.pk), group.attempt), ()),
        )
        views[group.step_id] = (*views.get(group.step_id, ()), view)
    return views


def _epoch(moment: datetime | None) -> float:
    return moment.timestamp() if moment else 0.0


def _task_view(task: Any, groups: dict[int, tuple[GroupView, ...]]) -> TaskView:
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
        steps=tuple(_step_view(step, groups, config["batch_size"]) for step in task.live_steps),
        max_staleness=config["max_staleness"],
        priority=task.priority,
        virtual_time=task.virtual_time,
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


def _step_view(step: Step, groups: dict[int, tuple[GroupView, ...]], size: int) -> StepView:
    """size: groups that a step of its task has."""
    unfinished = groups.get(step.pk, ())
    return StepView(
        number=step.number,
        state=step.state,
        groups=unfinished,
        num_finished=size - len(unfinished) if step.state == Step.State.OPEN else 0,
        version=step.generated_by,
        ready_order=step.ready_order,
        fence=step.fence,
        errors=step.errors,
        last_error=step.last_error,
        opened_at=step.opened_at.timestamp(),
        dispatched_at=_epoch(step.dispatched_at),
        holder=step.holder,
    )


def _worker_view(worker: Worker) -> WorkerView:
    stats = worker.stats
    return WorkerView(
        incarnation=str(worker.pk),
        name=worker.name,
        kind=worker.kind,
        base_models=tuple(worker.base_models),
        started_at=worker.started_at.timestamp(),
        last_beat_at=worker.last_beat_at.timestamp(),
        slots=worker.slots,
        kv_tokens=stats.get("kv_tokens", 0),
        kv_tokens_free=stats.get("kv_tokens_free", 0),
        adapter_slots=stats.get("adapter_slots", 0),
        tokens_per_s=stats.get("tokens_per_s", 0.0),
        num_running=stats.get("num_running", 0),
        tokens=stats.get("tokens_generated", 0),
        busy_s=stats.get("busy_s", 0.0),
        preemptions=stats.get("preemptions", 0),
    )


def _admit(command: Admit) -> None:
    move_task(command.task, Task.State.RUNNING, from_states=["queued"], started_at=timezone.now())


def _prepare(command: Prepare) -> None:
    Task.objects.filter(pk=command.task).update(prepare_sent_at=timezone.now())
    _send_on_commit("chores.prepare", "chores", {"task": command.task})


def _send_on_commit(name: str, queue: str, message: dict[str, Any]) -> None:
    """Robust: a stage call that fails to leave must not keep the next one back."""
    transaction.on_commit(partial(dispatch.send, name, queue, message), robust=True)


def _open_step(command: OpenStep) -> None:
    task = Task.objects.get(pk=command.task)
    config = task.hyperparameters
    is_strict = command.version == command.number
    step = Step.objects.create(
        task=task, number=command.number, policy_version=None if is_strict else command.version
    )
    rows = batch_rows(config.seed, command.number, config.batch_size, task.num_prompts)
    Group.objects.bulk_create(
        Group(step=step, index=index, prompt_index=row) for index, row in enumerate(rows)
    )


def _dispatch_group(command: DispatchGroup) -> None:
    sent = Group.objects.filter(
        pk=command.group, attempt=command.attempt - 1, state__in=["waiting", "dispatched"]
    ).update(state="dispatched", attempt=command.attempt, dispatched_at=timezone.now())
    if not sent:
        return
    group = Group.objects.select_related("step__task__tenant", "step__task__base_model").get(
        pk=command.group
    )
    task = group.step.task
    Tenant.objects.filter(pk=task.tenant_id).update(virtual_time=command.virtual_time)
    Task.objects.filter(pk=task.pk).update(virtual_time=command.task_virtual_time)
    if command.cause:
        place = f"Step {command.step + 1}, group {group.index + 1}"
        text = f"{place} is generated again: {command.cause}"
        events.record([log_event(task, "warning", text)])
    version = PolicyVersion.objects.get(task=task, number=group.step.generated_by)
    transaction.on_commit(partial(dispatch.send_group, group, version), robust=True)


def _dispatch_training(command: DispatchTraining) -> None:
    step = Step.objects.select_related("task__base_model").get(
        task__pk=command.task, number=command.step
    )
    sent = Step.objects.filter(
        pk=step.pk, fence=command.fence - 1, state__in=["ready", "training"]
    ).update(state="training", fence=command.fence, holder="", dispatched_at=timezone.now())
    if not sent:
        return
    if command.cause:
        Span.objects.filter(task=step.task, stage="training", ended_at=None).update(
            ended_at=timezone.now()
        )
        text = f"Step {command.step + 1} is trained again: {command.cause}"
        events.record([log_event(step.task, "warning", text)])
    message = {"step": step.pk, "fence": command.fence}
    _send_on_commit("training.train", f"training.{step.task.base_model.slug}", message)


def _end(command: End) -> None:
    end_task(command.task, command.state, command.reason, from_states=["running", "queued"])


def _explain(command: Explain) -> None:
    task = Task.objects.select_related("tenant").get(pk=command.task)
    if task.is_over:
        return
    if task.phase != command.phase:
        task.phase, task.phase_since = command.phase, timezone.now()
    task.reason, task.queue_position = command.reason[:500], command.queue_position
    Task.objects.filter(pk=task.pk, state=task.state).update(
        phase=task.phase,
        phase_since=task.phase_since,
        reason=task.reason,
        queue_position=task.queue_position,
    )
    announce(task)


def _set_concurrency(command: SetConcurrency) -> None:
    found = asdict(command.concurrency)
    BaseModel.objects.filter(slug=found["base_model"]).update(concurrency=found)


APPLY: dict[type, Callable[[Any], None]] = {
    SetConcurrency: _set_concurrency,
    Admit: _admit,
    Prepare: _prepare,
    OpenStep: _open_step,
    DispatchGroup: _dispatch_group,
    DispatchTraining: _dispatch_training,
    End: _end,
    Explain: _explain,
}
assert set(APPLY) == set(Command.__args__)
