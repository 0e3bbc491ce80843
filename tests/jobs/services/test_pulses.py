"""A worker whose heartbeat waits for the database is not taken for dead."""

from __future__ import annotations

import time
from datetime import timedelta

import pytest
from django.utils import timezone
from redis.exceptions import ConnectionError as RedisAway

from engine.manager.leases import BEAT_LIMIT_S, live_workers
from jobs.models import Worker
from jobs.services import pulses
from jobs.services.flights import look_at_flights
from jobs.services.heartbeats import Heartbeat, living_workers
from jobs.services.pulses import Pulse
from jobs.services.snapshots import take_snapshot

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("redis")]


def _silent() -> str:
    """A worker whose last beat was too long ago; returns its incarnation."""
    heartbeat = Heartbeat("rollout", "rollout-a", ["tiny"], slots=8)
    late = timezone.now() - timedelta(seconds=2 * BEAT_LIMIT_S)
    Worker.objects.filter(pk=heartbeat.incarnation).update(last_beat_at=late)
    return heartbeat.incarnation


def _living() -> set[str]:
    return set(live_workers(take_snapshot(look_at_flights())))


def _wait_for_pulse(incarnation: str) -> None:
    deadline = time.monotonic() + 5
    while incarnation not in pulses.taken():
        assert time.monotonic() < deadline, "no pulse"
        time.sleep(0.01)


def test_a_silent_worker_with_a_pulse_lives() -> None:
    incarnation = _silent()
    assert _living() == set()
    pulses.give(incarnation)
    assert _living() == {incarnation}


def test_whoever_asks_who_lives_hears_what_the_planner_does() -> None:
    incarnation = _silent()
    assert living_workers() == []
    pulses.give(incarnation)
    assert [str(worker.pk) for worker in living_workers()] == [incarnation]


def test_without_redis_those_that_beat_live(monkeypatch: pytest.MonkeyPatch) -> None:
    def away() -> None:
        raise RedisAway("away")

    monkeypatch.setattr(pulses, "taken", away)
    _silent()
    beating = Heartbeat("rollout", "rollout-b", ["tiny"])
    assert [str(worker.pk) for worker in living_workers()] == [beating.incarnation]


def test_figures_stay_those_of_the_last_beat() -> None:
    """What was sent since is not in them, whatever the pulse says."""
    pulses.give(_silent())
    (view,) = take_snapshot(look_at_flights()).workers
    assert view.pulse_at - view.last_beat_at > BEAT_LIMIT_S


def test_a_pulse_of_long_ago_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    incarnation = _silent()
    now = time.time()
    monkeypatch.setattr(pulses.time, "time", lambda: now - BEAT_LIMIT_S - 1)
    pulses.give(incarnation)
    assert _living() == set()


def test_pulses_of_processes_that_were_killed_are_thrown_away(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = time.time()
    pulses.give("old")
    monkeypatch.setattr(pulses.time, "time", lambda: now + pulses.KEPT_S + 1)
    pulses.give("new")
    assert set(pulses.taken()) == {"new"}
    assert pulses.redis.hkeys(pulses.KEY) == [b"new"]


def test_a_heartbeat_gives_a_pulse_even_while_its_beat_waits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    heartbeat = Heartbeat("rollout", "rollout-a", ["tiny"])
    monkeypatch.setattr(heartbeat, "beat", lambda: time.sleep(0.5))
    heartbeat.start()
    _wait_for_pulse(heartbeat.incarnation)
    heartbeat.stop()


def test_a_pulse_outlives_an_outage_of_redis(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pulses, "PULSE_S", 0.01)
    give, calls = pulses.give, []

    def away_at_first(incarnation: str) -> None:
        calls.append(incarnation)
        if len(calls) < 3:
            raise RedisAway("away")
        give(incarnation)

    monkeypatch.setattr(pulses, "give", away_at_first)
    pulse = Pulse("1")
    pulse.start()
    _wait_for_pulse("1")
    pulse.stop()
