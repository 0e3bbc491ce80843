"""Streams are numbered without gaps and say when a cursor is of no use."""

import pytest
from django.db import transaction

from jobs.services import events
from jobs.services.events import Event

pytestmark = pytest.mark.django_db


def _write(stream: str, *texts: str) -> None:
    with transaction.atomic():
        events.record(Event(stream, "log", {"text": text}) for text in texts)


def test_a_reader_gets_every_event_after_its_cursor_in_order() -> None:
    _write("task:a", "one", "two")
    _write("task:b", "other")
    _write("task:a", "three")
    epoch, head = events.position("task:a")
    chunk = events.events_since("task:a", epoch, 1)
    assert head == 3
    assert [(e.seq, e.data["text"]) for e in chunk.events] == [(2, "two"), (3, "three")]


def test_another_epoch_asks_for_a_new_snapshot() -> None:
    _write("task:a", "one")
    epoch, _ = events.position("task:a")
    events.rewrite_history("task:a")
    assert events.events_since("task:a", epoch, 0).reset == "epoch"


def test_a_cursor_older_than_what_is_kept_asks_for_a_new_snapshot() -> None:
    _write("task:a", "one", "two")
    epoch, _ = events.position("task:a")
    events.StreamEvent.objects.filter(seq=1).delete()
    assert events.events_since("task:a", epoch, 0).reset == "too_old"
    assert not events.events_since("task:a", epoch, 1).reset


def test_a_cursor_before_a_gap_in_what_is_kept_asks_for_a_new_snapshot() -> None:
    _write("task:a", "one", "two", "three", "four")
    epoch, _ = events.position("task:a")
    events.StreamEvent.objects.filter(seq=3).delete()
    assert events.events_since("task:a", epoch, 1).reset == "too_old"
    assert [e.seq for e in events.events_since("task:a", epoch, 3).events] == [4]


def test_an_event_of_a_change_that_rolls_back_leaves_no_gap() -> None:
    with pytest.raises(RuntimeError), transaction.atomic():
        events.record([Event("task:a", "log", {})])
        raise RuntimeError
    _write("task:a", "one")
    assert events.position("task:a")[1] == 1
