"""What a page of a task shows at one position of its stream.

Position and rows are read in one transaction, so every event up to the position is in the rows and
none after it; whoever subscribes from the position misses nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

from django.db import connection, transaction
from django.utils import timezone

from jobs.models import Step, StreamEvent, StreamHead, Task
from jobs.services import events
from jobs.services.lifecycle import state_data

from .series import curves
from .spans import timeline_spans
from .timeline import Viewer

LOG_LINES = 200
SPAN_WINDOW = timedelta(hours=1)


@contextmanager
def read_transaction() -> Iterator[None]:
    """All reads inside see the database as of one instant, and hold up no writer."""
    if connection.in_atomic_block:
        yield  # the caller's transaction is that instant
        return
    if connection.vendor == "sqlite":
        mode, connection.transaction_mode = connection.transaction_mode, "DEFERRED"
        try:
            with transaction.atomic():
                yield
        finally:
            connection.transaction_mode = mode
        return
    with transaction.atomic():
        with connection.cursor() as cursor:
            cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
        yield


def task_snapshot(task: Task, who: Viewer, buckets: int = 1200) -> dict[str, Any]:
    """Everything that the page of a task draws, and the positions to go on from."""
    for stream in (task.stream, events.CLUSTER):
        events.position(stream)  # makes the head of a stream not yet written
    with read_transaction():
        heads = {head.key: head for head in StreamHead.objects.filter(key__in=_streams(task))}
        task = Task.objects.get(pk=task.pk)
        now = timezone.now()
        done = Step.objects.filter(task=task, state=Step.State.COMMITTED).order_by("number")
        head, cluster = heads[task.stream], heads[events.CLUSTER]
        return {
            "epoch": str(head.epoch),
            "seq": head.last_seq,
            "cluster": {"epoch": str(cluster.epoch), "seq": cluster.last_seq},
            "server_time": round(now.timestamp() * 1000),
            "state": state_data(task),
            "max_steps": task.hyperparameters.max_steps,
            "series": curves(done.values_list("number", "metrics"), buckets),
            "spans": timeline_spans(task, who, _since(task, now), now),
            "versions": _versions(task),
            "log": log_lines(task, head.last_seq),
        }


def _streams(task: Task) -> tuple[str, str]:
    return task.stream, events.CLUSTER


def _since(task: Task, now: Any) -> Any:
    """The start of the lanes: the last hour, of a task that is over the last hour of its life."""
    return max(task.started_at or task.submitted_at, (task.ended_at or now) - SPAN_WINDOW)


def _versions(task: Task) -> list[dict[str, Any]]:
    return [
        {
            "number": version.number,
            "digest": version.digest,
            "num_bytes": version.num_bytes,
            "is_kept": version.is_kept,
            "is_deleted": version.deleted_at is not None,
            "canary": version.canary or None,
            "created_at": version.created_at.isoformat(),
        }
        for version in task.versions.order_by("number")
    ]


def log_lines(task: Task, seq: int | None = None) -> list[dict[str, Any]]:
    """The last lines of a task's log up to a position, oldest first: {level, text, at}."""
    rows = StreamEvent.objects.filter(stream=task.stream, kind="log")
    if seq is not None:
        rows = rows.filter(seq__lte=seq)
    return [row.data for row in rows.order_by("-seq")[:LOG_LINES]][::-1]
