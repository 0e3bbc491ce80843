"""Looks at Redis that cost much are kept for a while, and never believed where work seems lost."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from engine.manager.snapshot import Whereabouts
from jobs.models import Group, PolicyVersion, Step, Task, Worker
from jobs.services import flights, joins, planning, snapshots
from jobs.services.flights import CHEAP_S, KEPT_S, Flights, Lookout
from jobs.services.payloads import write_prompts


class Clock:
    """Time that only looking takes."""

    def __init__(self, look_s: float, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now, self.num_looks, self._look_s = 50.0, 0, look_s
        monkeypatch.setattr(flights, "look_at_flights", self._look)

    def _look(self) -> Flights:
        self.now += self._look_s
        self.num_looks += 1
        return Flights()

    def __call__(self) -> float:
        return self.now


def test_a_cheap_look_is_taken_for_each_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(CHEAP_S / 2, monkeypatch)
    lookout = Lookout(clock)
    assert [lookout.look().is_old for _ in range(3)] == [False] * 3
    assert clock.num_looks == 3


def test_a_dear_look_is_kept_for_ten_times_as_long_as_it_took(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = Clock(0.05, monkeypatch)
    lookout = Lookout(clock)
    first = lookout.look()
    clock.now += 0.49
    assert lookout.look().is_old
    assert lookout.look().number == first.number
    clock.now += 0.02
    assert not lookout.look().is_old
    assert lookout.look().number == first.number + 1


def test_no_look_is_kept_long_and_one_is_taken_anew_on_demand(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = Clock(5.0, monkeypatch)
    lookout = Lookout(clock)
    lookout.look()
    assert not lookout.look(anew=True).is_old
    clock.now += KEPT_S + 0.01
    assert not lookout.look().is_old
    assert clock.num_looks == 3


@pytest.fixture
def dispatched(task: Task, redis: Any) -> Group:
    """A group of a running task that a living worker has, as Redis knew a moment ago."""
    key = write_prompts(task.pk, [{"ids": b"\1\0\0\0", "row": {}}] * 2)
    Task.objects.filter(pk=task.pk).update(state="running", prompts_key=key, num_prompts=2)
    PolicyVersion.objects.create(task=task, number=0, digest="d0", key="k0")
    step = Step.objects.create(task=task, number=0)
    worker = Worker.objects.create(
        name="r",
        kind="rollout",
        host="here",
        pid=1,
        base_models=["tiny"],
        slots=64,
        last_beat_at=timezone.now(),
    )
    Group.objects.create(step=step, index=1, prompt_index=1, state="finished", attempt=1)
    group = Group.objects.create(
        step=step,
        index=0,
        prompt_index=0,
        state="dispatched",
        attempt=1,
        dispatched_at=timezone.now() - timedelta(seconds=20),
    )
    joins.open_attempt(str(group.pk), 1, 2, f"worker:{worker.pk}")
    return group


@pytest.mark.django_db(transaction=True)
def test_what_a_leaving_worker_handed_on_is_not_lost_by_an_old_look(
    dispatched: Group, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(flights, "CHEAP_S", 0.0)
    monkeypatch.setattr(flights, "KEPT_TIMES", 1e6)
    monkeypatch.setattr(planning, "_lookout", Lookout())
    planning.plan_once()
    joins.move(str(dispatched.pk), 1, [0, 1], "queue:rollout.tiny")
    Worker.objects.update(stopped_at=timezone.now())
    planning.plan_once()
    dispatched.refresh_from_db()
    assert (dispatched.state, dispatched.attempt) == ("dispatched", 1)


@pytest.mark.django_db(transaction=True)
def test_a_steps_view_is_kept_until_something_about_it_changes(dispatched: Group) -> None:
    def view(number: int, *places: Whereabouts) -> Any:
        look = Flights(number=number, places={(str(dispatched.pk), 1): places})
        (task,) = snapshots.take_snapshot(look).tasks
        return task.steps[0]

    there = Whereabouts("queue:rollout.tiny", 1.0, 2)
    first = view(1, there)
    assert view(1, there) is first
    assert view(2, replace(there)) is first
    later = replace(there, since=2.0)
    assert view(3, later).groups[0].whereabouts == (later,)
    assert view(4).groups[0].whereabouts == ()
    Group.objects.filter(pk=dispatched.pk).update(attempt=2)
    assert view(4).groups[0].attempt == 2
    Step.objects.update(state="ready", ready_order=3)
    assert view(4).state == "ready"


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(
    "change",
    [
        {"state": "waiting"},
        {"state": "finished"},
        {"attempt": 2},
        {"errors": 1, "last_error": "broken"},
        {"dispatched_at": "2030-01-01T00:00:00Z"},
        {"index": 5},
    ],
)
def test_any_change_of_a_group_that_the_planner_would_see_is_seen(
    dispatched: Group, change: dict[str, Any]
) -> None:
    def groups() -> Any:
        (task,) = snapshots.take_snapshot(Flights(number=7)).tasks
        return task.steps[0].groups

    before = groups()
    Group.objects.filter(pk=dispatched.pk).update(**change)
    kept = groups()
    snapshots._kept.clear()
    assert kept == groups() != before
