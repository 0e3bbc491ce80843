"""Event streams: numbered without gaps, read from a cursor.

A stream's head row is locked until commit, so the order of commits is the order of numbers and a
reader can never skip a late row. A doorbell says only that there is something to read; losing one
costs nothing, because readers also compare heads.

Streams and kinds:
    task:<id>     state {state, reason, pause_reason, phase, …},
                  metric {step, metrics}, span {…}, version {number, digest, canary},
                  group {step, index, id, rewards}, log {level, text}
    tenant:<id>   task {id, name, state, …}
    cluster       span {…}
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from django.db import models, transaction

from jobs.live import doorbell
from jobs.models import StreamEvent, StreamHead

CLUSTER = "cluster"


@dataclass(frozen=True)
class Event:
    """Something that happened, for one stream."""

    stream: str
    kind: str
    data: dict[str, Any]


def record(events: Iterable[Event]) -> None:
    """Append events to their streams inside the caller's transaction; ring on commit.

    Heads are locked in key order, so two writers of several streams cannot deadlock.
    """
    by_stream: dict[str, list[Event]] = {}
    for event in events:
        by_stream.setdefault(event.stream, []).append(event)
    for stream in sorted(by_stream):
        _append(stream, by_stream[stream])


def _append(stream: str, events: list[Event]) -> None:
    assert transaction.get_connection().in_atomic_block, (
        "events belong to their change's transaction"
    )
    head = lock_head(stream)
    first = head.last_seq + 1
    head.last_seq += len(events)
    head.save(update_fields=["last_seq"])
    StreamEvent.objects.bulk_create(
        StreamEvent(stream=stream, seq=first + i, kind=event.kind, data=event.data)
        for i, event in enumerate(events)
    )
    transaction.on_commit(lambda: doorbell.ring(stream, str(head.epoch), head.last_seq))


def lock_head(stream: str) -> StreamHead:
    """The stream's head, locked until the transaction ends."""
    StreamHead.objects.bulk_create([StreamHead(key=stream)], ignore_conflicts=True)
    return StreamHead.objects.select_for_update().get(key=stream)


def position(stream: str) -> tuple[str, int]:
    """(epoch, last sequence number) of a stream; creates the head of one not yet written."""
    head, _ = StreamHead.objects.get_or_create(key=stream)
    return str(head.epoch), head.last_seq


@dataclass(frozen=True)
class Chunk:
    """Events after a cursor, or the reason why the reader needs a new snapshot."""

    epoch: str
    head: int
    events: tuple[StreamEvent, ...] = ()
    reset: str = ""  # "epoch" | "too_old"


def events_since(stream: str, epoch: str, seq: int, limit: int = 500) -> Chunk:
    """The next events of a stream after position (epoch, seq), at most `limit`."""
    current, head = position(stream)
    if epoch != current or seq > head:
        return Chunk(current, head, reset="epoch")
    rows = tuple(StreamEvent.objects.filter(stream=stream, seq__gt=seq).order_by("seq")[:limit])
    if seq < head and (not rows or rows[-1].seq != seq + len(rows)):  # some are not kept
        return Chunk(current, head, reset="too_old")
    return Chunk(current, head, rows)


def rewrite_history(stream: str) -> None:
    """Give the stream a new epoch: every reader takes a new snapshot."""
    with transaction.atomic():
        head = lock_head(stream)
        head.epoch = uuid.uuid4()
        head.save(update_fields=["epoch"])


def drop_stream(stream: str) -> None:
    """Forget a stream that has ended; whoever still reads it is told to take a snapshot."""
    with transaction.atomic():
        StreamEvent.objects.filter(stream=stream).delete()
        StreamHead.objects.filter(key=stream).update(
            epoch=uuid.uuid4(), last_seq=models.F("last_seq")
        )
