"""Checks of tasks before they are submitted: asked for, run by a chore, and what became of them.

The row is the truth: pages poll it, and one whose worker has gone silent fails with that reason.
What a check does is in `jobs.workers.preflight`.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from django.db import transaction
from django.db.models import F, Q
from django.utils import timezone

from engine.errors import QuotaError
from engine.rewards import dump_graders
from jobs import artifacts
from jobs.models import Preflight, Tenant, TokenUsage, User
from jobs.services import samples
from jobs.services.dispatch import send
from jobs.services.submission import Submission
from jobs.services.tenants import require_writer

log = logging.getLogger(__name__)

DEFAULT_NAME = "Unnamed task"
MAX_UNDER_WAY = 3  # of a tenant
KEPT = 100  # of a tenant, the newest
BEAT_S = 1.0  # between two signs of life
SILENT_S = 60  # without one: whoever ran it is gone
SENT_AGAIN_AFTER_S = 60  # while it waits for a worker
WAITING = timedelta(minutes=15)  # at most, for a worker


class Unwanted(Exception):
    """The check is over, or gone."""


class Leaving(Exception):
    """The worker that runs the check is to end."""


def start_preflight(
    *,
    tenant: Tenant,
    user: User,
    name: Any,
    base_model: Any,
    dataset: Any,
    config: Any,
    graders: Any,
) -> Preflight:
    """Begin the check of a task. Takes what `submit_task` takes; a name is not needed.

    Raises: PermissionDenied; SpecError as `submit_task`; QuotaError if the tenant has enough under
    way, is suspended, or has used up its tokens of today.
    """
    require_writer(user, tenant)
    name = DEFAULT_NAME if name is None or name == "" else name
    checked = Submission(tenant, name, base_model, dataset, config, graders)
    with transaction.atomic():
        tenant = Tenant.objects.select_for_update().get(pk=tenant.pk)
        if problem := _not_now(tenant):
            raise QuotaError(problem)
        row = Preflight.objects.create(
            tenant=tenant,
            created_by=user,
            name=checked.name,
            base_model=checked.base_model,
            dataset=checked.dataset,
            config=checked.config.to_json(),
            graders=dump_graders(checked.graders),
            doing="waiting for a worker",
        )
        _forget_old(tenant)
        transaction.on_commit(lambda: _send(row.pk))
    return row


def _not_now(tenant: Tenant) -> str:
    """Why the tenant may not begin one; "" if it may."""
    under_way = Preflight.objects.filter(tenant=tenant, state__in=Preflight.UNDER_WAY).count()
    if under_way >= MAX_UNDER_WAY:
        return f"{under_way} checks of {tenant.name} are under way; let one end first."
    if tenant.is_suspended:
        return f"{tenant.name} is suspended: nothing new is begun. Ask an operator."
    if tenant.tokens_per_day and tokens_today(tenant) >= tenant.tokens_per_day:
        return (
            f"{tenant.name} has used its {tenant.tokens_per_day:,} tokens of today (UTC); a check"
            " generates some. Ask an operator for more, or wait."
        )
    return ""


def tokens_today(tenant: Tenant) -> int:
    """Tokens that count against the day's quota."""
    today = TokenUsage.objects.filter(tenant=tenant, day=TokenUsage.today())
    return sum(today.values_list("tokens", flat=True))


def _forget_old(tenant: Tenant) -> None:
    mine = Preflight.objects.filter(tenant=tenant)
    kept = mine.values_list("pk", flat=True)[:KEPT]
    mine.exclude(pk__in=list(kept)).exclude(state__in=Preflight.UNDER_WAY).delete()


def _send(pk: Any) -> None:
    send("chores.check_task", "chores", {"preflight": str(pk)})


def claim(pk: Any) -> Preflight | None:
    """The check, which the caller is now to run; None if it is nobody's to run any more."""
    now = timezone.now()
    waiting = Preflight.objects.filter(pk=pk, state=Preflight.State.QUEUED)
    if not waiting.update(state=Preflight.State.RUNNING, started_at=now, beat_at=now):
        return None
    related = ("tenant", "base_model", "dataset")
    return Preflight.objects.select_related(*related).filter(pk=pk).first()


def next_waiting() -> str | None:
    """The check that has waited longest."""
    waiting = Preflight.objects.filter(state=Preflight.State.QUEUED).order_by("created_at")
    pk = waiting.values_list("pk", flat=True).first()
    return str(pk) if pk else None


class Progress:
    """Says how far a check is, at most once a second, and that its worker lives."""

    def __init__(self, row: Preflight, is_leaving: Callable[[], bool] = lambda: False) -> None:
        self._pk = row.pk
        self._is_leaving = is_leaving
        self._told_at = 0.0

    def tell(self, doing: str, share_done: float) -> None:
        """Raises: Unwanted, Leaving."""
        if self._is_leaving():
            raise Leaving
        if time.monotonic() - self._told_at < BEAT_S:
            return
        self._told_at = time.monotonic()
        mine = Preflight.objects.filter(pk=self._pk, state=Preflight.State.RUNNING)
        beat = {"beat_at": timezone.now(), "doing": doing[:100], "share_done": share_done}
        if not mine.update(**beat):
            raise Unwanted


def finish(row: Preflight, report: dict[str, Any], num_tokens: int) -> None:
    """Keep the report of a check that is still running, and count its tokens."""
    with transaction.atomic():
        ended = {"state": Preflight.State.DONE, "report": _storable(report), "share_done": 1.0}
        _end(row.pk, **ended)
        charge(row.tenant_id, num_tokens)
    clean_up(row.pk)


def _storable(value: Any) -> Any:
    """What JSON and PostgreSQL can hold: no NUL, no halves of surrogate pairs, finite numbers."""
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode().replace("\0", "")
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {_storable(key): _storable(one) for key, one in value.items()}
    return [_storable(one) for one in value] if isinstance(value, (list, tuple)) else value


def fail(row: Preflight, reason: str) -> None:
    """End a running check without a report."""
    _end(row.pk, state=Preflight.State.FAILED, error=reason[:500])
    clean_up(row.pk)


def give_back(row: Preflight) -> None:
    """Let another worker begin a running check anew."""
    clean_up(row.pk)
    running = Preflight.objects.filter(pk=row.pk, state=Preflight.State.RUNNING)
    again = {"doing": "waiting for a worker", "share_done": 0.0, "started_at": None}
    if running.update(state=Preflight.State.QUEUED, **again):
        _send(row.pk)


def _end(pk: Any, **fields: Any) -> None:
    running = Preflight.objects.filter(pk=pk, state=Preflight.State.RUNNING)
    running.update(ended_at=timezone.now(), doing="", **fields)


def charge(tenant_id: Any, tokens: int) -> None:
    """Count tokens against the tenant's day."""
    if tokens:
        usage, _ = TokenUsage.objects.get_or_create(tenant_id=tenant_id, day=TokenUsage.today())
        TokenUsage.objects.filter(pk=usage.pk).update(tokens=F("tokens") + tokens)


def files_key(pk: Any) -> str:
    """Where a check's files are in the artifact store, while it runs."""
    return f"preflights/{pk}"


def clean_up(pk: Any) -> None:
    """Throw away what a check has left. Never raises: `tend_preflights` comes again."""
    try:
        samples.close(str(pk))
        artifacts.delete(files_key(pk))
    except Exception as error:  # the check's end must stand whatever Redis or the store say
        log.warning("what the check %s left is still there: %s", pk, error)


def tend_preflights() -> None:
    """End checks whose worker has gone silent, and send again what no worker has taken."""
    now = timezone.now()
    silent = Q(beat_at__lt=now - timedelta(seconds=SILENT_S))
    for row in Preflight.objects.filter(silent, state=Preflight.State.RUNNING):
        fail(row, "The worker that ran this check has gone silent. Check again.")
    waiting = Preflight.objects.filter(state=Preflight.State.QUEUED)
    waiting.filter(created_at__lt=now - WAITING).update(
        state=Preflight.State.FAILED,
        ended_at=now,
        doing="",
        error="No worker took this check within 15 minutes. Try again later, or tell an operator.",
    )
    for row in waiting.filter(created_at__lt=now - timedelta(seconds=SENT_AGAIN_AFTER_S)):
        _send(row.pk)
