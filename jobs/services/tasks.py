"""Tasks: submitted whole or refused with every wrong field; cancelled, paused, resumed."""

from __future__ import annotations

from typing import Any

from django.db import IntegrityError, transaction
from django.db.models import Count, Q
from django.utils import timezone

from engine.config import TaskConfig, parse_config
from engine.errors import GraderError, MarlaasError, QuotaError, SpecError
from engine.parameters import shown, text
from engine.rewards import Grader, dump_graders, parse_graders
from jobs.models import BaseModel, Dataset, Task, Tenant, TokenUsage, User
from jobs.services.datasets import preview
from jobs.services.lifecycle import announce, end_task, move_task
from jobs.services.planner_bell import ring_planner
from jobs.services.tenants import require_writer

MAX_NAME_CHARACTERS = 100
MAX_ACTIVE_TASKS = 500  # of a tenant, waiting ones included; the planner looks at each
CHECKED_ROWS = 100  # of the dataset's start: can the reward functions use their columns?


class ConflictError(MarlaasError):
    """The state of things stands against a request that would otherwise be in order."""


def submit_task(
    *,
    tenant: Tenant,
    user: User,
    name: str,
    base_model: BaseModel,
    dataset: Dataset,
    config: dict[str, Any],
    graders: list[Any],
    cloned_from: Task | None = None,
    idempotency_key: str | None = None,
) -> Task:
    """Queue a new task. The same idempotency key and request again return the same task.

    Raises: PermissionDenied; SpecError with every wrong field (`name`, `base_model`, `dataset`,
    `config.<setting>`, `graders.<place>.<parameter>`); QuotaError; ConflictError if the key was
    used for another request.
    """
    require_writer(user, tenant)
    checked = _Submission(tenant, name, base_model, dataset, config, graders)
    fields = {
        "name": checked.name,
        "base_model": base_model,
        "dataset": dataset,
        "config": checked.config.to_json(),
        "graders": dump_graders(checked.graders),
    }
    if idempotency_key and (earlier := _submitted(tenant, idempotency_key, fields)):
        return earlier
    if Task.objects.filter(tenant=tenant, state__in=Task.ACTIVE).count() >= MAX_ACTIVE_TASKS:
        raise QuotaError(f"{MAX_ACTIVE_TASKS} tasks are waiting or running; let some end first.")
    try:
        return _create(
            tenant=tenant,
            created_by=user,
            cloned_from=cloned_from,
            idempotency_key=idempotency_key or "",
            **fields,
        )
    except IntegrityError:  # the same request, at the same time
        earlier = _submitted(tenant, idempotency_key or "", fields)
        if earlier is None:
            raise
        return earlier


def _create(**fields: Any) -> Task:
    with transaction.atomic():
        task = Task.objects.create(
            reason="Waiting for the planner.", phase_since=timezone.now(), **fields
        )
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


class _Submission:
    """A person's request, checked. Raises: SpecError with everything that is wrong."""

    name: str
    config: TaskConfig
    graders: tuple[Grader, ...]

    def __init__(
        self,
        tenant: Tenant,
        name: Any,
        base_model: BaseModel,
        dataset: Dataset,
        config: Any,
        graders: Any,
    ) -> None:
        self.errors: dict[str, list[str]] = {}
        self._read_name(name)
        if not base_model.is_enabled:
            self._add("base_model", f"{base_model.name} takes no new tasks.")
        if dataset.tenant_id != tenant.pk:
            self._add("dataset", "There is no such dataset.")
        if self._read_config(config):
            self._check_limits(tenant, base_model)
        if self._read_graders(graders) and "dataset" not in self.errors:
            self._check_columns(dataset)
        if self.errors:
            raise SpecError(self.errors)

    def _add(self, field: str, message: str) -> None:
        self.errors.setdefault(field, []).append(message)

    def _read_name(self, name: Any) -> None:
        try:
            self.name = text(name, MAX_NAME_CHARACTERS).strip()
        except ValueError as error:
            self._add("name", str(error))
        else:
            if not self.name:
                self._add("name", "Must not be empty.")

    def _read_config(self, config: Any) -> bool:
        try:
            self.config = parse_config(config)
        except SpecError as error:
            for name, messages in error.fields.items():
                self.errors["config" if name == "config" else f"config.{name[:100]}"] = messages
            return False
        return True

    def _read_graders(self, graders: Any) -> bool:
        try:
            self.graders = parse_graders(graders)
        except SpecError as error:
            self.errors.update(error.fields)
            return False
        return True

    def _check_limits(self, tenant: Tenant, base_model: BaseModel) -> None:
        config = self.config
        if config.lora_rank > tenant.max_lora_rank:
            self._add(
                "config.lora_rank",
                f"Must be at most {tenant.max_lora_rank}, the quota of {tenant.name}.",
            )
        total = config.max_prompt_length + config.max_completion_length
        if total > base_model.max_model_length:
            self._add(
                "config.max_completion_length",
                f"With max_prompt_length it makes {total:,} tokens; {base_model.name} takes"
                f" {base_model.max_model_length:,} together.",
            )

    def _check_columns(self, dataset: Dataset) -> None:
        """Refuse reward functions whose column is absent, or of no use in every row looked at."""
        rows: list[dict[str, Any]] = []
        for place, grader in enumerate(self.graders):
            target = getattr(grader, "target", "")
            if not target:
                continue
            if target not in dataset.columns:
                columns = ", ".join(dataset.columns[:20])
                self._add(
                    f"graders.{place}.target",
                    f"The dataset has no column {shown(target)}; it has: {columns}.",
                )
                continue
            rows = rows or preview(dataset, CHECKED_ROWS)
            if problem := _useless(grader, rows):
                self._add(f"graders.{place}.target", f"No row looked at can be graded: {problem}.")


def _useless(grader: Grader, rows: list[dict[str, Any]]) -> str:
    """Why no row can be graded; empty if one can."""
    problem = ""
    for row in rows:
        try:
            grader.score("", row)
        except GraderError as error:
            problem = problem or str(error).partition(": ")[2]
        else:
            return ""
    return problem


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
    if not move_task(
        task.pk,
        Task.State.RUNNING,
        from_states=[Task.State.PAUSED],
        reason=f"Resumed by {user}.",
    ):
        raise _wrong_state(task, "resumed", "Only a paused task can be.")


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
        "lora_rank": _use(None, tenant.max_lora_rank, "rank of one adapter"),
    }


def _use(used: int | None, limit: int | None, unit: str) -> dict[str, Any]:
    return {"used": used, "limit": limit or None, "unit": unit}
