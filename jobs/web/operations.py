"""The operators' page of the planner: what it sees of each base model, what it decided lately."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from django.conf import settings
from django.core.paginator import Paginator
from django.db.models import Q
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe
from redis.exceptions import RedisError

from engine.manager.pacing import PASSES_WAITING, SLACK
from engine.manager.policy import POLICIES
from jobs.models import Task, Tenant
from jobs.services.decisions import KEPT, KINDS, Decision, recent_decisions
from jobs.services.operations import base_model_states

from .tenants import require_staff

PER_PAGE = 50
MAX_NAME = 100  # characters looked for


@dataclass(frozen=True)
class Filters:
    """What the page is narrowed to; "" does not narrow."""

    tenant: str = ""  # slug
    task: str = ""  # id, or part of the name
    kind: str = ""

    @classmethod
    def of(cls, request: HttpRequest) -> Filters:
        values = (
            request.GET.get(name, "").replace("\0", "").strip()[:MAX_NAME]
            for name in ("tenant", "task", "kind")
        )
        return cls(*values)

    def __bool__(self) -> bool:
        return bool(self.tenant or self.task or self.kind)

    def passing(self, decisions: Iterable[Decision]) -> list[Decision]:
        """Those that pass, in order."""
        tenant = _tenant_id(self.tenant) if self.tenant else None
        tasks = _task_ids(self.task) if self.task else None
        return [
            one
            for one in decisions
            if (not self.kind or one.kind == self.kind)
            and (tenant is None or one.tenant == tenant)
            and (tasks is None or one.task in tasks)
        ]


def _tenant_id(slug: str) -> str:
    found = Tenant.objects.filter(slug=slug).values_list("pk", flat=True).first()
    return str(found) if found else "none"


def _task_ids(text: str) -> set[str]:
    wanted = Q(name__icontains=text)
    with suppress(ValueError):
        wanted |= Q(pk=uuid.UUID(text))
    return {str(pk) for pk in Task.objects.filter(wanted).values_list("pk", flat=True)}


@require_safe
def planner_page(request: HttpRequest) -> HttpResponse:
    """State by base model and the last decisions, newest first; ?tenant=, ?task=, ?kind=."""
    require_staff(request)
    filters, problem = Filters.of(request), ""
    try:
        decisions = filters.passing(recent_decisions())
    except RedisError as error:
        decisions, problem = [], f"The decisions cannot be read: {error}"
    page = Paginator(decisions, PER_PAGE).get_page(request.GET.get("page"))
    context = {
        "policy": POLICIES[settings.SCHEDULE_POLICY],
        "states": base_model_states(),
        "slack": SLACK,
        "passes_waiting": PASSES_WAITING,
        "page": page,
        "rows": _rows(list(page.object_list)),
        "filters": filters,
        "tenants": Tenant.objects.order_by("name").values_list("slug", "name"),
        "kinds": KINDS.values(),
        "kept": KEPT,
        "problem": problem,
    }
    return render(request, "ops/planner.html", context)


def _rows(decisions: Sequence[Decision]) -> list[dict[str, Any]]:
    """Decisions with the names of what they are about; a task may be gone."""
    tasks = {
        str(task.pk): task
        for task in Task.objects.filter(
            pk__in={one.task for one in decisions if one.task}
        ).select_related("tenant")
    }
    return [
        {
            "decision": one,
            "at": datetime.fromtimestamp(one.at, UTC),
            "task": tasks.get(one.task),
            "about": about(one),
            "basis": basis_words(one),
        }
        for one in decisions
    ]


def about(one: Decision) -> str:
    """What is done to what: step 4: groups 1–12, 8.4 device-seconds."""
    if one.step is None:
        return ""
    step = f"step {one.step + 1}"
    if not one.groups:
        return f"{step}, attempt {one.attempt}" if one.attempt else step
    attempt = f", attempt {one.attempt}" if one.attempt > 1 else ""
    words = "group" if len(one.groups) == 1 else "groups"
    return f"{step}: {words} {ranges(one.groups)}{attempt}, {one.cost_s:,.1f} device-seconds"


def ranges(indexes: Iterable[int]) -> str:
    """Indexes from 0 as a person counts: 1–3, 7."""
    parts: list[list[int]] = []
    for index in sorted(indexes):
        if parts and index == parts[-1][1] + 1:
            parts[-1][1] = index
        else:
            parts.append([index, index])
    return ", ".join(f"{a + 1}–{b + 1}" if b > a else f"{a + 1}" for a, b in parts)


def basis_words(one: Decision) -> list[str]:
    """What it was based on, part by part."""
    basis = one.basis
    limit = f", limit {basis.limit:,}" if basis.limit else ""
    words = [
        f"{basis.in_flight:,} sequences in flight for {basis.slots:,} slots{limit}",
        f"{basis.away:,} with environments",
        f"{basis.waiting:,} groups to be sent",
        f"{basis.line:,} steps at the trainer",
    ]
    if basis.tenant_time is not None:
        after = "" if one.tenant_time is None else f" → {one.tenant_time:,.1f}"
        words.append(f"virtual time of the tenant {basis.tenant_time:,.1f}{after}")
    if basis.task_time is not None:
        words.append(f"of the task {basis.task_time:,.1f}, priority {basis.priority}")
    return words
