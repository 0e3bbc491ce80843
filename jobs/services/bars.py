"""What keeps tasks from beginning anything, so that nobody can say how long it will take.

Told in half a sentence that goes on after "nobody can say: ", and names no other tenant.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from typing import Any

from django.conf import settings
from django.utils import timezone

from engine.manager.policy import POLICIES
from jobs.models import Task, Tenant, TokenUsage, Worker
from jobs.services import storage
from jobs.services.pulses import KEPT_S


class Bars:
    """Read in a few questions for the tasks of some tenants."""

    def __init__(self, tenant_ids: Iterable[Any]) -> None:
        self._policy = POLICIES[settings.SCHEDULE_POLICY]
        self._chosen = _chosen(self._policy.max_tasks)
        self._tenants = Tenant.objects.in_bulk(list(tenant_ids))
        used = TokenUsage.objects.filter(day=TokenUsage.today(), tenant__in=self._tenants)
        self._tokens = dict(used.values_list("tenant_id", "tokens"))
        # Under heavy load a worker may beat late and live on, as the planner sees by its pulse.
        rows = Worker.objects.filter(stopped_at=None)
        rows = rows.filter(last_beat_at__gte=timezone.now() - timedelta(seconds=KEPT_S))
        self._served = {
            (kind, slug)
            for kind, slugs in rows.values_list("kind", "base_models")
            for slug in slugs
        }

    def max_concurrent_tasks(self, task: Task) -> int:
        """That the task's tenant may run or have paused at once; 0: no limit."""
        return self._tenants[task.tenant_id].max_concurrent_tasks

    def admission(self, task: Task) -> str:
        """Why the task, which is queued, is not let in whoever ends; "" if it will be."""
        suspended = self._tenants[task.tenant_id].is_suspended
        return "your organisation is suspended" if suspended else ""

    def now(self, task: Task, stage: str) -> str:
        """Why nothing of a running task may begin; "" if it may. stage: of its oldest live step,
        "none" if it has none."""
        slug = task.base_model.slug
        if found := self.admission(task):
            return found
        if self._chosen is not None and task.pk not in self._chosen:
            return f"the policy {self._policy.name} runs other tasks first"
        if stage == "none" and (found := self.opening(task)):
            return found
        if stage in ("none", "open") and ("rollout", slug) not in self._served:
            return f"no rollout worker for {slug} is running"
        if ("training", slug) not in self._served:
            return f"no training worker for {slug} is running"
        return ""

    def opening(self, task: Task) -> str:
        """Why no further step of the task may be opened; "" if it may."""
        tenant = self._tenants[task.tenant_id]
        if storage.is_full(tenant):
            return "your organisation's storage quota is used"
        if 0 < tenant.tokens_per_day <= self._tokens.get(tenant.pk, 0):
            return "your organisation's tokens of today are used"
        return ""


def _chosen(max_tasks: int) -> frozenset[Any] | None:
    """Running tasks that a policy lets begin anything, as `World.of` chooses; None: all."""
    if not max_tasks:
        return None
    running = Task.objects.filter(state=Task.State.RUNNING).order_by("submitted_at", "id")
    return frozenset(running.values_list("pk", flat=True)[:max_tasks])
