"""Pages of tasks: the list, one task, and what its buttons do."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from typing import Any

from django.contrib import messages
from django.core.paginator import Paginator
from django.db.models import Sum
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_GET, require_POST, require_safe

from engine.config import FIELDS
from engine.errors import MarlaasError
from jobs.live.snapshots import log_lines
from jobs.models import Group, Member, Span, Task, User
from jobs.services import tasks as services
from jobs.services.events import position
from jobs.services.outlook import read_estimates, read_outlook
from jobs.services.priorities import PRIORITY
from jobs.services.tenants import WRITERS

from .figures import headline, progress_of
from .frame import current_tenant
from .trajectories import sampled_groups

PER_PAGE = 50
TABLE_STEPS = 25


def own_task(request: HttpRequest, task_id: uuid.UUID) -> Task:
    """A task of the user's tenants. Raises: Http404 for an unknown and a foreign one alike."""
    found = Task.objects.for_user(request.user).select_related(
        "tenant", "base_model", "dataset", "created_by", "cloned_from"
    )
    task = found.filter(pk=task_id).first()
    if task is None:
        raise Http404("There is no such task.")
    return task


@require_safe
def task_list(request: HttpRequest) -> HttpResponse:
    """The tenant's tasks, newest first; ?state= filters."""
    tenant = current_tenant(request)
    state = request.GET.get("state", "")
    epoch, seq = position(f"tenant:{tenant.pk}") if tenant else ("", 0)  # before the rows
    found = Task.objects.for_user(request.user).filter(tenant=tenant)
    found = found.select_related("base_model", "dataset", "created_by")
    if state in Task.State.values:
        found = found.filter(state=state)
    page = Paginator(found, PER_PAGE).get_page(request.GET.get("page"))
    tasks = list(page.object_list)
    progress, estimates = progress_of(tasks), read_estimates(tasks)
    context = {
        "page": page,
        "rows": [(task, progress[task.pk], estimates.get(task.pk)) for task in tasks],
        "state": state,
        "states": Task.State.choices,
        "has_any": bool(tasks) or Task.objects.filter(tenant=tenant).exists(),
        "may_write": may_write(request.user, tenant),
        "epoch": epoch,
        "seq": seq,
    }
    return render(request, "tasks/list.html", context)


@require_safe
def task_detail(request: HttpRequest, task_id: uuid.UUID) -> HttpResponse:
    """Everything about one task; live where scripts run, complete without them."""
    task = own_task(request, task_id)
    progress = progress_of([task])[task.pk]
    groups, steps, step = sampled_groups(task, request.GET.get("step", ""))
    context = {
        "task": task,
        "progress": progress,
        "headline": headline(task, progress),
        "outlook": read_outlook(task),
        "reward_rows": list(reversed(progress.rewards))[:TABLE_STEPS],
        "stage_rows": stage_rows(task),
        "groups": groups,
        "steps": steps,
        "step": step,
        "versions": task.versions.order_by("-number"),
        "config_rows": config_rows(task),
        "log": log_lines(task),
        "tokens": Group.objects.filter(step__task=task).aggregate(n=Sum("num_tokens"))["n"] or 0,
        "may_write": may_write(request.user, task.tenant),
        "priority_help": PRIORITY["help"],
        "metrics": SMALL_CHARTS + (STALE_CHARTS if task.config["max_staleness"] else ()),
    }
    return render(request, "tasks/detail.html", context)


# (metric, title, unit) of the small charts under the reward curve.
SMALL_CHARTS = (
    ("completions/mean_length", "Completion length", "tokens"),
    ("frac_reward_zero_std", "Zero-variance groups", "share of groups"),
    ("grad_norm", "Gradient norm", "before clipping"),
    ("kl", "KL to the base model", "nats a token"),
    ("entropy", "Entropy", "nats a token"),
    ("rollout_train_kl", "Rollout mismatch, KL", "nats a token"),
    ("rollout_train_diff/mean", "Rollout mismatch, mean", "nats a token"),
    ("rollout_train_diff/max", "Rollout mismatch, largest", "nats"),
    ("time/train_s", "Training pass", "s"),
)
# And of a task whose batches may be of an older version
STALE_CHARTS = (
    ("staleness", "Staleness of the batch", "versions"),
    ("stale_kl", "Policy since the batch, KL", "nats a token"),
)


def may_write(user: Any, tenant: Any) -> bool:
    """Whether the user is an owner or a member of the tenant, not only a viewer."""
    return Member.objects.filter(user=user, tenant=tenant, role__in=WRITERS).exists()


def stage_rows(task: Task) -> list[dict[str, Any]]:
    """Per stage: how many spans, how long in all, tokens. Overlapping spans count twice."""
    rows: dict[str, dict[str, Any]] = {}
    spans = Span.objects.filter(task=task, ended_at__isnull=False)
    for stage, start, end, tokens in spans.values_list("stage", "started_at", "ended_at", "tokens"):
        row = rows.setdefault(stage, {"stage": stage, "spans": 0, "seconds": 0.0, "tokens": 0})
        row["spans"] += 1
        row["seconds"] += (end - start).total_seconds()
        row["tokens"] += tokens
    return [rows[stage] for stage in Span.Stage.values if stage in rows]


def config_rows(task: Task) -> list[tuple[str, Any, str, bool]]:
    """(name, value, help, is it not the default) of every hyper-parameter."""
    rows = []
    for name, value in task.hyperparameters.to_json().items():
        spec = FIELDS[name]
        shown = ", ".join(value) if isinstance(value, list) else f"{value}"
        default = list(spec.default) if isinstance(spec.default, tuple) else spec.default
        if isinstance(value, dict):
            shown, default = json.dumps(value, ensure_ascii=False), spec.metadata["written"]
        rows.append((name, shown, spec.metadata["help"], value != default))
    return rows


@require_GET
def confirm_cancel(request: HttpRequest, task_id: uuid.UUID) -> HttpResponse:
    """Asks, for who has no scripts; others get the same question in a dialog."""
    return render(request, "tasks/cancel.html", {"task": own_task(request, task_id)})


def _act(
    request: HttpRequest, task_id: uuid.UUID, act: Callable[[Task, User], None], said: str
) -> HttpResponse:
    task = own_task(request, task_id)
    try:
        act(task, request.user)
    except MarlaasError as error:
        messages.error(request, str(error))
    else:
        messages.success(request, said.format(task.name, priority=task.priority))
    return redirect("task", task_id=task.pk)


@require_POST
def cancel(request: HttpRequest, task_id: uuid.UUID) -> HttpResponse:
    return _act(request, task_id, services.cancel_task, "{} is cancelled; its quota is free.")


@require_POST
def pause(request: HttpRequest, task_id: uuid.UUID) -> HttpResponse:
    return _act(request, task_id, services.pause_task, "{} pauses after what is under way.")


@require_POST
def resume(request: HttpRequest, task_id: uuid.UUID) -> HttpResponse:
    return _act(request, task_id, services.resume_task, "{} goes on.")


@require_POST
def change_priority(request: HttpRequest, task_id: uuid.UUID) -> HttpResponse:
    def change(task: Task, user: User) -> None:
        services.set_priority(task, user, request.POST.get("priority", ""))

    return _act(request, task_id, change, "{} has priority {priority} now.")
