"""Old events but logs are thrown away, and files of old versions; one failure stops no other."""

from datetime import timedelta
from typing import Any

import pytest
from django.db import transaction
from django.utils import timezone

from jobs import artifacts
from jobs.models import PolicyVersion, Step, StreamEvent
from jobs.services import events, retention
from jobs.services.events import Event

pytestmark = pytest.mark.django_db


def test_old_events_of_every_stream_go_and_logs_stay() -> None:
    with transaction.atomic():
        events.record(
            Event(stream, kind, {})
            for stream in ("cluster", "task:a", "tenant:1")
            for kind in ("span", "log")
        )
    StreamEvent.objects.update(at=timezone.now() - timedelta(hours=25))
    with transaction.atomic():
        events.record([Event("task:a", "span", {})])
    retention.clean()
    left = StreamEvent.objects.order_by("stream", "seq").values_list("stream", "seq", "kind")
    assert list(left) == [
        ("cluster", 2, "log"),
        ("task:a", 2, "log"),
        ("task:a", 3, "span"),
        ("tenant:1", 2, "log"),
    ]


def test_a_bounded_number_of_events_goes_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retention, "EVENTS_AT_ONCE", 2)
    with transaction.atomic():
        events.record(Event("cluster", "span", {}) for _ in range(5))
    StreamEvent.objects.update(at=timezone.now() - timedelta(hours=25))
    retention.clean()
    assert list(StreamEvent.objects.values_list("seq", flat=True)) == [3, 4, 5]


def test_files_that_cannot_be_deleted_keep_no_others(
    make_task: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("first", "second"):
        task = make_task(name, config={"keep_last": 1})
        for number in range(3):
            fields = {"digest": "d", "key": f"{name}-{number}"}
            PolicyVersion.objects.create(task=task, number=number, **fields)
    deleted = []

    def delete(key: str) -> None:
        if key == "first-0":
            raise PermissionError("read-only file system")
        deleted.append(key)

    monkeypatch.setattr(artifacts, "delete", delete)
    retention.clean()
    assert sorted(deleted) == ["first-1", "second-0", "second-1"]
    assert PolicyVersion.objects.get(key="first-0").deleted_at is None


def test_a_version_that_a_step_under_way_is_generated_by_is_kept(make_task: Any) -> None:
    task = make_task("stale", config={"keep_last": 1, "max_staleness": 2, "max_steps": 9})
    for number in range(5):
        key = f"stale-{number}"
        artifacts.put(f"{key}/adapter", b"weights")
        PolicyVersion.objects.create(task=task, number=number, digest="d", key=key)
    Step.objects.create(task=task, number=3, policy_version=1, state="committed")
    Step.objects.create(task=task, number=4, policy_version=2, state="training")
    Step.objects.create(task=task, number=5, policy_version=3)
    retention.clean()
    deleted = PolicyVersion.objects.exclude(deleted_at=None).values_list("number", flat=True)
    assert list(deleted) == [0, 1]
    Step.objects.update(state="committed")
    retention.clean()
    left = PolicyVersion.objects.filter(deleted_at=None).values_list("number", flat=True)
    assert list(left) == [4]
