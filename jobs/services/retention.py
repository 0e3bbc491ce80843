"""What is thrown away, and when: old versions' files, old events, rows of dead workers.

What is left after that is measured, tenant by tenant.
"""

from __future__ import annotations

import logging
from datetime import datetime, timedelta
from typing import Any

from django.db.models import Count, Max, Q
from django.utils import timezone

from jobs import artifacts
from jobs.models import PolicyVersion, StreamEvent, Task, Worker
from jobs.services import storage

EVENTS_KEPT = timedelta(hours=24)
EVENTS_AT_ONCE = 5_000  # every 30 s: more than a busy installation writes
WORKERS_KEPT = timedelta(hours=24)
SILENT_S = 60

log = logging.getLogger(__name__)


def clean() -> int:
    """Remove what nobody needs any more; returns how many versions lost their files."""
    now = timezone.now()
    _clean_events(now - EVENTS_KEPT)
    silent = now - timedelta(seconds=SILENT_S)
    Worker.objects.filter(stopped_at=None, last_beat_at__lt=silent).update(stopped_at=now)
    Worker.objects.filter(last_beat_at__lt=now - WORKERS_KEPT).delete()
    cleaned = sum(_clean_versions(task) for task in _tasks_with_files())
    storage.measure()
    return cleaned


def _clean_events(before: datetime) -> None:
    """Forget old events but the lines of logs, which nothing else keeps.

    A bounded number at a time, found before the database's one writer is taken.
    """
    old = StreamEvent.objects.exclude(kind="log").filter(at__lt=before).order_by("pk")
    keys = list(old.values_list("pk", flat=True)[:EVENTS_AT_ONCE])
    StreamEvent.objects.filter(pk__in=keys).delete()


def _tasks_with_files() -> Any:
    """Tasks with at least two versions that may go; ended tasks soon have none and cost nothing."""
    disposable = Q(versions__is_kept=False, versions__deleted_at=None)
    return Task.objects.annotate(
        last=Max("versions__number"), num_disposable=Count("versions", filter=disposable)
    ).filter(num_disposable__gt=1)


def _clean_versions(task: Any) -> int:
    """Delete files of versions that are neither kept nor among the last `keep_last`.

    The step in flight needs the latest version, so that one never goes.
    """
    last = task.last
    old = PolicyVersion.objects.filter(
        task=task, is_kept=False, deleted_at=None, number__lte=last - task.config["keep_last"]
    )
    for version in old:
        try:
            artifacts.delete(version.key)
        except OSError as error:  # the others' files must go all the same
            log.warning("%s not deleted: %s", version.key, error)
            continue
        PolicyVersion.objects.filter(pk=version.pk).update(deleted_at=timezone.now())
    return len(old)
