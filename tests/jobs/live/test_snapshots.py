"""A snapshot holds the rows up to its position, down-sampled without losing extremes."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone
from knox.models import AuthToken

from jobs.live import spans
from jobs.live.series import curves
from jobs.live.snapshots import task_snapshot
from jobs.live.spans import LaneSpan, fit, join
from jobs.live.timeline import Viewer, cluster_data, viewer
from jobs.models import Span, Step

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def _url(task: Any) -> str:
    return f"/api/v1/tasks/{task.id}/snapshot"


def test_buckets_keep_last_low_and_high() -> None:
    steps = [(n, {"reward": value}) for n, value in enumerate([1.0, 5.0, -2.0, 3.0])]
    found = curves(steps, buckets=2)
    assert found["bucket"] == 2
    assert found["x"] == [1, 3]
    assert found["metrics"]["reward"] == {
        "last": [5.0, 3.0],
        "low": [1.0, -2.0],
        "high": [5.0, 3.0],
    }


def test_what_is_missing_or_not_finite_is_a_gap() -> None:
    steps = [(0, {"kl": 1.0}), (1, {"kl": float("nan")}), (2, {"kl": None, "loss": 2})]
    found = curves(steps, buckets=100)
    assert found["metrics"]["kl"]["last"] == [1.0, None, None]
    assert found["metrics"]["loss"]["last"] == [None, None, 2.0]


def test_touching_spans_of_a_step_become_one_and_tokens_add_up() -> None:
    spans = [
        LaneSpan("a", "rollout", 0, 10, step=0, tokens=3),
        LaneSpan("a", "rollout", 5, 20, step=0, tokens=4),
        LaneSpan("a", "rollout", 20, 30, step=1, tokens=1),
        LaneSpan("a", "rollout", 25, None, step=1),
    ]
    assert join(spans, 0) == [
        LaneSpan("a", "rollout", 0, 20, step=0, tokens=7),
        LaneSpan("a", "rollout", 20, 30, step=1, tokens=1),
        LaneSpan("a", "rollout", 25, None, step=1),
    ]


@pytest.mark.django_db
def test_of_more_spans_than_anybody_draws_the_newest_are_read(
    make_task: Any, alice: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spans, "MAX_READ", 2)
    task, other = make_task(), make_task()
    now = timezone.now()
    for minute in (50, 40, 30, 20):
        at = now - timedelta(minutes=minute)
        for owner in (task, other):
            Span.objects.create(
                task=owner, stage="rollout", worker="w", step=minute, started_at=at, ended_at=at
            )
    since = now - timedelta(hours=1)
    found = spans.timeline_spans(task, viewer(alice), since, now)
    steps = [(row[0] == str(task.id), row[4]) for row in found["rows"]]
    assert sorted(steps) == [(False, 20), (False, 30), (True, 20), (True, 30)]


def test_too_many_spans_are_joined_over_gaps_and_the_gap_is_told() -> None:
    spans = [LaneSpan("a", "rollout", n * 10, n * 10 + 2, step=n) for n in range(10_000)]
    joined, gap_ms = fit(spans, window_ms=100_000)
    assert len(joined) <= 4_000
    assert gap_ms >= 8
    assert (joined[0].start_ms, joined[-1].end_ms) == (0, 99_992)


def test_another_tenants_span_keeps_stage_and_times_only(settings: Any) -> None:
    data = {
        "task": "t", "tenant": 7, "stage": "training", "worker": "w", "step": 3, "group": None,
        "started_at": "s", "ended_at": "e", "tokens": 9,
    }  # fmt: skip
    seen = cluster_data(Viewer(1, frozenset({8})), data)
    assert seen.pop("lane") not in ("t", "7")
    assert seen == {
        "label": "", "is_own": False, "stage": "training", "started_at": "s", "ended_at": "e",
    }  # fmt: skip
    settings.TIMELINE_PRIVACY = "own-only"
    assert cluster_data(Viewer(1, frozenset({8})), data)["stage"] == "in-use"
    assert cluster_data(Viewer(1, frozenset({7})), data)["step"] == 3


def test_two_viewers_cannot_compare_the_lanes_that_they_see() -> None:
    data = {"task": "t", "tenant": 7, "stage": "training"}
    one, two = (cluster_data(Viewer(n, frozenset()), data)["lane"] for n in (1, 2))
    assert one != two


@pytest.mark.django_db
def test_a_snapshot_never_names_another_tenants_task(
    alice: Any, task: Any, make_task: Any, umbrella: Any
) -> None:
    secret = make_task("secret plan", tenant=umbrella)
    for owner in (task, secret):
        Span.objects.create(
            task=owner,
            stage="rollout",
            worker="secret-worker" if owner is secret else "rollout-1",
            step=4,
            started_at=timezone.now(),
            ended_at=timezone.now() + timedelta(seconds=1),
            tokens=99,
        )
    text = json.dumps(task_snapshot(task, viewer(alice)))
    lanes = json.loads(text)["spans"]["lanes"]
    assert [lane["is_own"] for lane in lanes] == [True, False]
    for secret_text in ("secret", str(secret.id), "Umbrella"):
        assert secret_text not in text
    other = next(row for row in json.loads(text)["spans"]["rows"] if row[0] != str(task.id))
    assert other[4:] == [None, None, 0]


@pytest.mark.django_db
def test_the_endpoint_answers_by_session_and_by_token(alice: Any, bob: Any, task: Any) -> None:
    Step.objects.create(task=task, number=0, state="committed", metrics={"reward": 0.25})
    client = Client()
    assert client.get(_url(task)).status_code in (401, 403)
    _row, token = AuthToken.objects.create(bob)
    answer = client.get(_url(task), headers={"Authorization": f"Token {token}"})
    assert answer.json()["series"]["metrics"]["reward"]["last"] == [0.25]
    client.force_login(alice)
    assert client.get(_url(task)).json()["seq"] == 0
    assert client.get(_url(task), {"buckets": "0"}).status_code == 400


@pytest.mark.django_db
def test_a_strangers_snapshot_is_not_found(mallory: Any, task: Any) -> None:
    client = Client()
    client.force_login(mallory)
    assert client.get(_url(task)).status_code == 404


@pytest.mark.django_db(transaction=True)
def test_a_snapshot_holds_up_no_writer_and_sees_one_instant(alice: Any, task: Any) -> None:
    """Rows written by another connection while a snapshot is read are not in it."""
    import threading

    from django.db import connection

    from jobs.live import snapshots

    def write() -> None:
        Step.objects.create(task=task, number=0, state="committed", metrics={"reward": 1.0})
        connection.close()

    with snapshots.read_transaction():
        assert Step.objects.count() == 0
        writer = threading.Thread(target=write)
        writer.start()
        writer.join(timeout=10)
        assert not writer.is_alive()
        assert Step.objects.count() == 0
    assert Step.objects.count() == 1


def _span(task: Any, begin_s: int, end_s: int | None, **fields: Any) -> None:
    """A span of the task in seconds from NOW."""
    Span.objects.create(
        task=task,
        started_at=NOW + timedelta(seconds=begin_s),
        ended_at=None if end_s is None else NOW + timedelta(seconds=end_s),
        **{"stage": "rollout", "step": 0, **fields},
    )


@pytest.mark.django_db
def test_named_lanes_count_a_stage_once_however_often_it_is_at_work(
    make_task: Any, umbrella: Any
) -> None:
    task, other = make_task("sums"), make_task("secret", tenant=umbrella)
    _span(task, -20, 10)  # began before the hour
    _span(task, 5, 30, group=1)
    _span(task, 25, 40, step=1)
    _span(other, 50, None, stage="training")
    found = spans.named_spans(Span.objects.all(), NOW, NOW + timedelta(seconds=60))
    none = {"rollout": 0.0, "environment": 0.0, "training": 0.0}
    assert [(lane["label"], lane["seconds"]) for lane in found["lanes"]] == [
        ("sums, Acme", {**none, "rollout": 40.0}),
        ("secret, Umbrella", {**none, "training": 10.0}),
    ]
    assert found["rows"][-1][:4] == [str(other.pk), "training", *_ms_of(50, 60)]
    assert (found["num_tasks"], found["merged_ms"]) == (2, 0)


def _ms_of(*seconds: int) -> list[int]:
    return [round((NOW + timedelta(seconds=s)).timestamp() * 1000) for s in seconds]


@pytest.mark.django_db
def test_of_many_tasks_those_that_worked_last_have_lanes(
    make_task: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spans, "MAX_LANES", 2)
    for place, name in enumerate(("first", "second", "third")):
        _span(make_task(name), place, place + 1)
    found = spans.named_spans(Span.objects.all(), NOW, NOW + timedelta(seconds=60))
    assert [lane["task"] for lane in found["lanes"]] == ["second", "third"]
    assert (found["num_tasks"], len(found["rows"])) == (3, 2)
