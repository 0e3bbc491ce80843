"""What cannot be read of one base model, worker or decision ends nobody's work."""

from __future__ import annotations

from typing import Any

import msgpack
import pytest
from django.utils import timezone

from engine.manager.snapshot import Concurrency, Counters, SetConcurrency
from jobs.models import BaseModel, Task, Worker
from jobs.services import decisions, planning, pulses, stored
from jobs.services.heartbeats import Heartbeat
from jobs.services.operations import base_model_states
from jobs.services.planning import plan_once
from jobs.services.snapshots import concurrency_of

NAN, INFINITE = float("nan"), float("inf")
pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("redis")]


@pytest.mark.parametrize("value", [None, "x", "7", [], {}, True, -1, NAN, INFINITE, 1e300])
def test_a_number_that_is_none_counts_as_0(value: Any) -> None:
    assert stored.number({"busy_s": value}, "busy_s") == 0.0
    assert stored.whole(value, "busy_s") == 0


def test_numbers_are_read_as_they_are() -> None:
    assert stored.number({"busy_s": 2}, "busy_s") == 2.0
    assert stored.whole({"tokens": 2.9}, "tokens") == 2


def test_a_limit_comes_back_as_it_was_kept(task: Task) -> None:
    slug = task.base_model.slug
    kept = Concurrency(slug, 7, 6.5, 9.0, (Counters("a", 1.0, 2.0, 3),))
    planning._set_concurrency(SetConcurrency(kept))
    assert concurrency_of(slug, BaseModel.objects.get(slug=slug).concurrency) == kept


@pytest.mark.parametrize(
    "kept",
    [
        {"limit": 3},
        {"limit": "7", "sustained": None, "counters": 5},
        {"counters": [None, {"busy_s": "x"}], "speeds": [1.0]},
        {"preempted_at": 1e14},
        [1],
        "x",
        5,
    ],
)
def test_planning_and_its_page_survive_whatever_limit_is_kept(task: Task, kept: Any) -> None:
    BaseModel.objects.update(concurrency=kept)
    plan_once()
    assert base_model_states()


@pytest.mark.parametrize("stats", [[], "x", {"busy_s": None}, {"num_running": None, "tokens": "x"}])
def test_planning_and_its_page_survive_whatever_a_worker_says(task: Task, stats: Any) -> None:
    Worker.objects.create(
        name="r",
        kind="rollout",
        host="h",
        pid=1,
        base_models=[task.base_model.slug],
        slots=8,
        stats=stats,
        last_beat_at=timezone.now(),
    )
    plan_once()
    assert base_model_states()[0].num_running == 0


def test_a_limit_that_cannot_be_kept_ends_no_plan(
    task: Task, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is of no task that could fail for it."""

    def fail(command: SetConcurrency) -> None:
        raise ValueError("unstorable")

    monkeypatch.setitem(planning.APPLY, SetConcurrency, fail)
    planning._apply(SetConcurrency(Concurrency(task.base_model.slug, limit=7)))
    task.refresh_from_db()
    assert task.state != "failed"


def test_a_beat_leaves_out_what_json_does_not_know() -> None:
    heartbeat = Heartbeat(
        "rollout", "r", ["tiny"], stats=lambda: {"busy_s": NAN, "sequence_s": INFINITE, "tokens": 3}
    )
    heartbeat.beat()
    assert Worker.objects.get(pk=heartbeat.incarnation).stats == {"tokens": 3}


@pytest.mark.parametrize("text", ["x", "nan", "inf", "1e99", ""])
def test_a_pulse_that_is_no_moment_is_thrown_away(text: str) -> None:
    pulses.redis.hset(pulses.KEY, "a", text)
    assert pulses.taken() == {}
    assert not pulses.redis.exists(pulses.KEY)


def test_a_decision_that_another_version_kept_is_left_out() -> None:
    other = {"at": 1.0, "kind": "send", "basis": {}, "groups": [], "colour": "red"}
    decisions.redis.lpush(decisions.KEY, msgpack.packb(other), b"\xc1", msgpack.packb([1]))
    assert list(decisions.recent_decisions()) == []
