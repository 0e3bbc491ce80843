"""What work costs, against numbers worked out by hand."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.utils import timezone

from engine.types import Trajectory
from jobs.models import Group, PolicyVersion, Step, Task
from jobs.services import costs, groups, passes
from tests.jobs.trajectories import trajectory

START = datetime(2026, 1, 1, tzinfo=UTC)


def _at(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


def test_only_times_with_a_group_under_way_count() -> None:
    """0–10 and 5–12 are 12 s; then a pause; 100–104. One never dispatched counts nothing."""
    times = [(_at(0), _at(10)), (_at(5), _at(12)), (_at(100), _at(104)), (None, None)]
    assert costs.under_way_seconds(times) == pytest.approx(16.0)


@pytest.mark.django_db
def test_the_first_figure_is_taken_and_later_ones_move_the_mean(task: Task) -> None:
    costs.learn_pass(task, 10.0)
    costs.learn_pass(task, 20.0)
    task.refresh_from_db()
    assert task.pass_s == pytest.approx(13.0)


def _charged(found: Trajectory, device_s: float) -> Trajectory:
    """The trajectory, its turn being told to have taken so much of the engine."""
    return replace(found, turns=tuple(replace(turn, device_s=device_s) for turn in found.turns))


def test_a_group_costs_what_its_turns_took_of_the_engines() -> None:
    found = [_charged(trajectory("g", 0), 1.5), _charged(trajectory("g", 1), 0.25)]
    assert costs.group_seconds(found) == pytest.approx(1.75)
    assert costs.group_seconds([trajectory("g")]) == 0.0


@pytest.mark.django_db
@pytest.mark.usefixtures("redis")
def test_a_step_teaches_all_three_costs(task: Task) -> None:
    Task.objects.update(state="running")
    PolicyVersion.objects.create(task=task, number=0, digest="d0", key="k0")
    step = Step.objects.create(task=task, number=0)
    sent = timezone.now() - timedelta(seconds=30)
    for index in range(2):
        group = Group.objects.create(
            step=step,
            index=index,
            prompt_index=0,
            state="dispatched",
            attempt=1,
            dispatched_at=sent,
        )
        found = [_charged(trajectory(group.pk, i), 1.5) for i in range(2)]
        assert groups.finish_group(str(group.pk), 1, found, "environment-1")
    task.refresh_from_db()
    assert task.group_s == pytest.approx(3.0)
    assert task.mean_group_tokens == pytest.approx(8)
    assert 30 <= task.rollout_s < 60
    Step.objects.update(state="training", fence=1)
    taken: Any = passes.take_pass(step.pk, 1, "a", "training-1")
    taken.span.started_at -= timedelta(seconds=7)
    assert passes.commit_version(taken, "d1", "k1", 1, {})
    task.refresh_from_db()
    assert 7 <= task.pass_s < 60
