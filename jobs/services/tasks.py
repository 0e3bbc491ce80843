"""Tasks: submitted whole or refused with every wrong field; cancelled, paused, resumed."""

from __future__ import annotations

from typing import Any

from django.db import IntegrityError, transaction
from django.db.models import Count, Q
from django.utils import timezone

from engine.config import ALIASES
from engine.errors import MarlaasError, QuotaError
from engine.rewards import dump_graders
from jobs.models import BaseModel, Dataset, Task, Tenant, TokenUsage, User
from jobs.services import events
from jobs.services.graders import Origins, record_origins
from jobs.services.lifecycle import announce, end_task, lock_task, log_event, move_task
from jobs.services.planner_bell import ring_planner
from jobs.services.priorities import checked_priority
from jobs.services.storage import MIB, no_room, stored_bytes
from jobs.services.submission import MAX_NAME_CHARACTERS, Submission
from jobs.services.tenants import require_writer
from jobs.services.ungraded import generate_ungraded_again

MAX_ACTIVE_TASKS = 100  # of a tenant, waiting ones included; the planner looks at each


class ConflictError(MarlaasError):
    """The state of things stands against a request that would otherwise be in order."""


def submit_task(
    *,
    tenant: Tenant,
    user: User,
    name: str,
    base_model: BaseModel | Any,
    dataset: Dataset | Any,
    config: dict[str, Any],
    graders: list[Any],
    priority: Any = 0,
    cloned_from: Task | None = None,
    idempotency_key: str | None = None,
) -> Task:
    """Queue a new task. The same idempotency key and request again return the same task.

    base_model and dataset are rows, or a stranger's slug and id.
    Raises: PermissionDenied; SpecError with every wrong field (`name`, `base_model`, `dataset`,
    `config.<setting>`, `graders.<place>.<parameter>`, `priority`); QuotaError; ConflictError if the
    key was used for another request (but for its priority, which may have been changed since).
    """
    require_writer(user, tenant)
    checked = Submission(tenant, name, base_model, dataset, config, graders, priority)
    fields = {
        "name": checked.name,
        "base_model": checked.base_model,
        "dataset": checked.dataset,
        "config": checked.config.to_json(),
        "graders": dump_graders(checked.graders),
    }
    if idempotency_key and (earlier := _submitted(tenant, idempotency_key, fields)):
        return earlier
    if problem := no_room(tenant, 0):
        raise QuotaError(problem)
    try:
        return _create(
            tenant=tenant,
            created_by=user,
            cloned_from=cloned_from,
            idempotency_key=idempotency_key or "",
            origins=checked.origins,
            priority=checked.priority,
            **fields,
        )
    except IntegrityError:  # the same request, at the same time
        earlier = _submitted(tenant, idempotency_key or "", fields)
        if earlier is None:
            raise
        return earlier


def _create(*, tenant: Tenant, origins: Origins, **fields: Any) -> Task:
    """Raises: QuotaError, counted while no other submission of the tenant can come between."""
    with transaction.atomic():
        Tenant.objects.select_for_update().get(pk=tenant.pk)
        if Task.objects.filter(tenant=tenant, state__in=Task.ACTIVE).count() >= MAX_ACTIVE_TASKS:
            raise QuotaError(
                f"{MAX_ACTIVE_TASKS} tasks are waiting or running; let some end first."
            )
        task = Task.objects.create(
            tenant=tenant,
            reason="Waiting for the planner.",
            phase_since=timezone.now(),
            **fields,
        )
        record_origins(task, origins)
        announce(task, log=True)
        transaction.on_commit(ring_planner)
    return task


def _submitted(tenant: Tenant, key: str, fields: dict[str, Any]) -> Task | None:
    """The task that this key submitted. Raises: ConflictError if it was another one."""
    task = Task.objects.filter(tenant=tenant, idempotency_key=key).first() if key else None
    if task is not None and any(getattr(task, name) != value for name, value in fields.items()):
        raise ConflictError(
            f"This Idempotency-Key submitted the task {task.name!r} with other settings;"
            " use a new key for a new task."
        )
    return task


def clone_task(
    task: Task, user: User, changes: dict[str, Any], *, idempotency_key: str | None = None
) -> Task:
    """Submit a task like this one; `changes` replace its fields, and single settings of `config`.

    Raises: as `submit_task`.
    """
    config = changes.get("config", {})
    if isinstance(config, dict):
        config = {**task.config, **{ALIASES.get(key, key): value for key, value in config.items()}}
    return submit_task(
        tenant=task.tenant,
        user=user,
        name=changes.get("name", f"{task.name[: MAX_NAME_CHARACTERS - 7]} (copy)"),
        base_model=changes.get("base_model", task.base_model),
        dataset=changes.get("dataset", task.dataset),
        config=config,
        graders=changes.get("graders", task.graders),
        priority=changes.get("priority", task.priority),
        cloned_from=task,
        idempotency_key=idempotency_key,
    )


def cancel_task(task: Task, user: User) -> None:
    """End a task that is not over. Raises: PermissionDenied, ConflictError."""
    require_writer(user, task.tenant)
    if not end_task(
        task.pk, Task.State.CANCELLED, f"Cancelled by {user}.", from_states=Task.ACTIVE
    ):
        raise _wrong_state(task, "cancelled", "It is over already.")


def pause_task(task: Task, user: User) -> None:
    """Stop dispatching a running task after what is under way. Raises as `cancel_task`."""
    require_writer(user, task.tenant)
    if not move_task(
        task.pk,
        Task.State.PAUSED,
        from_states=[Task.State.RUNNING],
        reason=f"Paused by {user}. It keeps its place and counts against the quota.",
    ):
        raise _wrong_state(task, "paused", "Only a running task can be.")


def resume_task(task: Task, user: User) -> None:
    """Let a paused task go on. Raises as `cancel_task`."""
    require_writer(user, task.tenant)
    with transaction.atomic():
        is_resumed = move_task(
            task.pk,
            Task.State.RUNNING,
            from_states=[Task.State.PAUSED],
            reason=f"Resumed by {user}.",
        )
        if is_resumed:
            generate_ungraded_again(task)
    if not is_resumed:
        raise _wrong_state(task, "resumed", "Only a paused task can be.")


def set_priority(task: Task, user: User, value: Any) -> None:
    """Change the priority of a task that is not over. Raises: SpecError, and as `cancel_task`."""
    require_writer(user, task.tenant)
    priority = checked_priority(value)
    with transaction.atomic():
        state = lock_task(task.pk)
        if state not in Task.ACTIVE:
            raise _wrong_state(task, "given another priority", "It is over already.")
        Task.objects.filter(pk=task.pk).update(priority=priority)
        task.priority, task.state = priority, state
        announce(Task.objects.select_related("tenant").get(pk=task.pk))
        events.record([log_event(task, "info", f"Priority {priority}, set by {user}.")])
        transaction.on_commit(ring_planner)


def _wrong_state(task: Task, verb: str, rule: str) -> ConflictError:
    task.refresh_from_db(fields=["state"])
    return ConflictError(
        f"A task that is {task.get_state_display().lower()} cannot be {verb}. {rule}"
    )


def quota_use(tenant: Tenant) -> dict[str, dict[str, Any]]:
    """What a tenant uses of its quotas: {name: {used, limit, unit}}; limit None means none."""
    counts = Task.objects.filter(tenant=tenant).aggregate(
        occupying=Count("pk", filter=Q(state__in=Task.OCCUPYING)),
        queued=Count("pk", filter=Q(state=Task.State.QUEUED)),
    )
    today = TokenUsage.objects.filter(tenant=tenant, day=timezone.now().date())
    tokens = sum(today.values_list("tokens", flat=True))
    return {
        "concurrent_tasks": _use(counts["occupying"], tenant.max_concurrent_tasks, "tasks"),
        "queued_tasks": _use(counts["queued"], None, "tasks"),
        "tokens_today": _use(tokens, tenant.tokens_per_day, "tokens since 0:00 UTC"),
        "step_tokens": _use(None, tenant.max_step_tokens, "tokens of one training step"),
        "stored_mib": _use(stored_bytes(tenant) // MIB, tenant.max_stored_mib, "MiB"),
        "lora_rank": _use(None, tenant.max_lora_rank, "rank of one adapter"),
    }


def _use(used: int | None, limit: int | None, unit: str) -> dict[str, Any]:
    return {"used": used, "limit": limit or None, "unit": unit}
