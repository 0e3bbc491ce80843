"""The operators' pages of the planner: each base model, what waits, what was decided, all lanes."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from django.conf import settings
from django.core.paginator import Paginator
from django.db.models import Q, QuerySet
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils import timezone
from django.views.decorators.http import require_safe
from redis.exceptions import RedisError

from engine.manager.explain import MAX_TOLD_PLACES
from engine.manager.policy import POLICIES, Policy
from jobs.live.spans import named_spans
from jobs.models import Span, Task, Tenant
from jobs.services.bars import held_back_by_policy
from jobs.services.decisions import KEPT, KINDS, Decision, recent_decisions
from jobs.services.operations import BaseModelState, base_model_states
from jobs.services.waiting_tasks import waiting_tasks

from .planner_words import about, basis_words, pacing_bound, policy_bound, rule
from .tenants import require_staff

PER_PAGE = 50
MAX_WAITING = 50  # waiting tasks shown
LANES_SHOW = timedelta(hours=1)
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

    def tasks(self, tasks: QuerySet[Task]) -> QuerySet[Task]:
        """Those that pass; they are of no kind of decision."""
        if self.tenant:
            tasks = tasks.filter(tenant__slug=self.tenant)
        return tasks.filter(_is_task(self.task)) if self.task else tasks


def _tenant_id(slug: str) -> str:
    found = Tenant.objects.filter(slug=slug).values_list("pk", flat=True).first()
    return str(found) if found else "none"


def _task_ids(text: str) -> set[str]:
    return {str(pk) for pk in Task.objects.filter(_is_task(text)).values_list("pk", flat=True)}


def _is_task(text: str) -> Q:
    """Tasks whose name has the text in it, or whose id it is."""
    wanted = Q(name__icontains=text)
    with suppress(ValueError):
        wanted |= Q(pk=uuid.UUID(text))
    return wanted


@require_safe
def planner_page(request: HttpRequest) -> HttpResponse:
    """State by base model, what waits and the last decisions; ?tenant=, ?task=, ?kind=."""
    require_staff(request)
    filters, problem = Filters.of(request), ""
    policy = POLICIES[settings.SCHEDULE_POLICY]
    waiting = filters.tasks(waiting_tasks())
    try:
        decisions = filters.passing(recent_decisions())
    except RedisError as error:
        decisions, problem = [], f"The decisions cannot be read: {error}"
    page = Paginator(decisions, PER_PAGE).get_page(request.GET.get("page"))
    context = {
        "policy": policy,
        "states": _states(policy),
        "pacing_bound": pacing_bound(),
        "policy_bound": policy_bound(policy),
        "waiting": waiting[:MAX_WAITING],
        "num_waiting": waiting.count(),
        "max_waiting": MAX_WAITING,
        "max_told_places": MAX_TOLD_PLACES,
        "page": page,
        "rows": _rows(list(page.object_list)),
        "filters": filters,
        "tenants": Tenant.objects.order_by("name").values_list("slug", "name"),
        "kinds": KINDS.values(),
        "kept": KEPT,
        "problem": problem,
    }
    return render(request, "ops/planner.html", context)


@require_safe
def timeline_page(request: HttpRequest) -> HttpResponse:
    """The lanes of all tasks at one moment, by name; ?tenant=, ?task=."""
    require_staff(request)
    filters, now = replace(Filters.of(request), kind=""), timezone.now()
    spans = Span.objects.all()
    if filters:
        spans = spans.filter(task__in=filters.tasks(Task.objects.all()))
    found = named_spans(spans, now - LANES_SHOW, now)
    context = {
        "filters": filters,
        "tenants": Tenant.objects.order_by("name").values_list("slug", "name"),
        "now": now,
        "found": {**found, "server_time": round(now.timestamp() * 1000)},
        "stages": Span.Stage.values,
        "rows": [(lane, list(lane["seconds"].items())) for lane in found["lanes"]],
    }
    return render(request, "ops/timeline.html", context)


def _states(policy: Policy) -> list[tuple[BaseModelState, int]]:
    """Base models, each with how many tasks of it the policy holds back."""
    held_back = Counter(slug for _, slug in held_back_by_policy(policy))
    return [(state, held_back[state.slug]) for state in base_model_states()]


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
            "rule": rule(one),
            "basis": basis_words(one),
        }
        for one in decisions
    ]
