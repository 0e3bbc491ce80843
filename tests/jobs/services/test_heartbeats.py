"""A worker that was only stopped for a while is alive again; nothing ends its heartbeat."""

import time
from datetime import timedelta
from typing import Any

import pytest
from django.db import OperationalError, connection, transaction
from django.utils import timezone

from jobs.models import Worker
from jobs.services import heartbeats, retention
from jobs.services.heartbeats import Heartbeat

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("redis")]


def _wait_for(calls: list[Any], number: int) -> None:
    deadline = time.monotonic() + 5
    while len(calls) < number:
        assert time.monotonic() < deadline, f"only {len(calls)} calls"
        time.sleep(0.01)


def _sleep_for(heartbeat: Heartbeat, silence: timedelta) -> None:
    """As after SIGSTOP, or a laptop's lid: the cleaner was awake before the worker."""
    Worker.objects.filter(pk=heartbeat.worker.pk).update(last_beat_at=timezone.now() - silence)
    retention.clean()


def test_a_worker_tells_its_figures_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the planner would take its engine for boundless until the first beat."""
    monkeypatch.setattr(heartbeats, "BEAT_S", 60.0)
    seen: list[str] = []
    heartbeat = Heartbeat(
        "rollout", "rollout-a", ["tiny"], 8, lambda: {"kv_tokens": 64}, seen.append
    )
    heartbeat.start()
    _wait_for(seen, 1)
    heartbeat.stop()
    assert Worker.objects.get(pk=heartbeat.incarnation).stats == {"kv_tokens": 64}


@pytest.mark.parametrize("silence", [timedelta(minutes=2), timedelta(hours=30)])
def test_a_worker_that_was_taken_for_dead_comes_back(silence: timedelta) -> None:
    heartbeat = Heartbeat("rollout", "rollout-a", ["tiny"], slots=8)
    _sleep_for(heartbeat, silence)
    heartbeat.beat()
    worker = Worker.objects.get(pk=heartbeat.incarnation)
    assert worker.stopped_at is None
    assert timezone.now() - worker.last_beat_at < timedelta(seconds=5)
    assert worker.slots == 8


def test_a_worker_with_a_successor_does_not_come_back() -> None:
    old = Heartbeat("rollout", "rollout-a", ["tiny"])
    Heartbeat("rollout", "rollout-a", ["tiny"])
    old.beat()
    assert Worker.objects.get(pk=old.incarnation).stopped_at


def test_no_error_ends_the_heartbeat(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heartbeats, "BEAT_S", 0.01)
    calls = []

    def stats() -> dict[str, Any]:
        calls.append(len(calls))
        raise KeyError("figures")

    heartbeat = Heartbeat("training", "training", ["tiny"], 0, stats)
    heartbeat.start()
    _wait_for(calls, 3)
    heartbeat.stop()
    assert Worker.objects.get(pk=heartbeat.incarnation).stopped_at


def test_a_beat_after_an_error_begins_with_a_connection_of_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The one of the error may be dead, as all are after a restart of PostgreSQL."""
    monkeypatch.setattr(heartbeats, "BEAT_S", 0.01)
    open_before: list[bool] = []

    def stats() -> dict[str, Any]:
        open_before.append(connection.connection is not None)
        Worker.objects.count()
        raise OperationalError("the connection is closed")

    heartbeat = Heartbeat("training", "training", ["tiny"], 0, stats)
    heartbeat.start()
    _wait_for(open_before, 3)
    heartbeat.stop()
    assert not any(open_before)


def test_what_a_worker_holds_is_looked_at_after_each_beat(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heartbeats, "BEAT_S", 0.01)
    seen: list[str] = []
    heartbeat = Heartbeat("training", "training", ["tiny"], 0, dict, seen.append)
    heartbeat.start()
    _wait_for(seen, 2)
    heartbeat.stop()
    assert set(seen) == {heartbeat.incarnation}


def test_a_beat_that_waited_for_the_database_is_of_the_moment_it_was_written(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whoever else writes must not make a worker seem silent."""
    heart = Heartbeat("rollout", "waits", ["tiny"])
    turn: list[Any] = []
    began = transaction.Atomic.__enter__

    def wait_for_turn(self: Any) -> None:
        began(self)
        turn.append(timezone.now())

    monkeypatch.setattr(transaction.Atomic, "__enter__", wait_for_turn)
    heart.beat()
    heart.worker.refresh_from_db()
    assert turn
    assert heart.worker.last_beat_at >= turn[0]
