"""What keeps tasks from beginning anything, so that nobody can say how long it will take.

Told in half a sentence that goes on after "nobody can say: ", or that begins with "not before "
where the time is known. It names no other tenant.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from django.conf import settings

from engine.manager.policy import POLICIES, Policy
from jobs.models import Task, Tenant, TokenUsage, Worker
from jobs.services import storage
from jobs.services.estimates import NOT_BEFORE


class Bars:
    """Read in a few questions for the tasks of some tenants."""

    def __init__(self, tenant_ids: Iterable[Any], workers: Iterable[Worker]) -> None:
        """workers: those that live."""
        self._policy = POLICIES[settings.SCHEDULE_POLICY]
        self._held_back = {task for task, _ in held_back_by_policy(self._policy)}
        self._tenants = Tenant.objects.in_bulk(list(tenant_ids))
        used = TokenUsage.objects.filter(day=TokenUsage.today(), tenant__in=self._tenants)
        self._tokens = dict(used.values_list("tenant_id", "tokens"))
        self._served = {(worker.kind, slug) for worker in workers for slug in worker.base_models}

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
        if task.pk in self._held_back:
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
            return f"{NOT_BEFORE}00:00 UTC: your organisation's tokens of today are used"
        return ""


def held_back_by_policy(policy: Policy) -> list[tuple[Any, str]]:
    """Running tasks that may begin nothing while others run, as `World.of` chooses, each with its
    base model's slug; none where the policy lets all run at once."""
    if not policy.max_tasks:
        return []
    running = Task.objects.filter(state=Task.State.RUNNING).order_by("submitted_at", "id")
    return list(running.values_list("pk", "base_model__slug")[policy.max_tasks :])
