"""How far a stream has been sent to a socket, and what comes next."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from jobs.models import StreamHead
from jobs.services.events import Chunk, events_since

from . import timeline


@dataclass
class Subscription:
    """How far a stream has been sent."""

    stream: str
    epoch: str
    seq: int
    is_dirty: bool = True


def read(who: timeline.Viewer, subscription: Subscription) -> tuple[Chunk, list[dict[str, Any]]]:
    """The next events after what was sent, and each as this viewer may see it."""
    chunk = events_since(subscription.stream, subscription.epoch, subscription.seq)
    return chunk, [
        {"kind": event.kind, "data": timeline.as_seen_by(who, event)} for event in chunk.events
    ]


def events_message(
    subscription: Subscription, chunk: Chunk, items: list[dict[str, Any]]
) -> dict[str, Any]:
    """What goes over the socket: a range of events, numbered `from` to `to`."""
    return {
        "op": "ev",
        "stream": subscription.stream,
        "epoch": subscription.epoch,
        "from": chunk.events[0].seq,
        "to": chunk.events[-1].seq,
        "items": items,
    }


def heads_of(streams: list[str]) -> dict[str, list[Any]]:
    """{stream: [epoch, last sequence number]} of streams that have a head."""
    rows = StreamHead.objects.filter(key__in=streams).values_list("key", "epoch", "last_seq")
    return {key: [str(epoch), seq] for key, epoch, seq in rows}
