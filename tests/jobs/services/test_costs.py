"""What work costs, against numbers worked out by hand."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.utils import timezone

from engine.types import Turn
from jobs.models import Group, PolicyVersion, Step, Task, Worker
from jobs.services import costs, groups, passes
from jobs.services.heartbeats import Heartbeat
from tests.jobs.trajectories import trajectory

START = datetime(2026, 1, 1, tzinfo=UTC)


def _at(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


def test_a_token_costs_what_the_engine_computed_for_all_tokens_meanwhile() -> None:
    price = costs.TokenPrice()
    assert price.see(0, 0.0) == 0.0
    assert price.see(100, 2.0) == pytest.approx(0.02)
    assert price.see(100, 2.0) == pytest.approx(0.02)  # idle: nothing is learned
    # 300 tokens in 1 s more: (0.8 · 2 + 1) / (0.8 · 100 + 300)
    assert price.see(400, 3.0) == pytest.approx(2.6 / 380)


def test_prompts_that_were_computed_before_any_token_came_are_in_its_price() -> None:
    price = costs.TokenPrice()
    assert price.see(0, 5.0) == 0.0
    assert price.see(10, 6.0) == pytest.approx(0.6)


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


def _worker(name: str, price: float | None) -> None:
    stats = {} if price is None else {costs.PRICE: price}
    Worker.objects.create(
        name=name, kind="rollout", host="h", pid=1, stats=stats, last_beat_at=timezone.now()
    )


@pytest.mark.django_db
def test_a_group_costs_its_tokens_at_the_price_of_each_worker() -> None:
    """6 tokens at 0.5 s and 2 at 2 s; 3 more of a worker that tells none cost as the rest."""
    _worker("rollout-1", 0.5)
    _worker("other", 2.0)
    _worker("silent", None)
    one = trajectory("g", 0)
    two = trajectory("g", 1)
    turns = (*two.turns, Turn(6, 8, "d0", "stop", 1, 2, worker="other"))
    turns = (*turns, Turn(8, 11, "d0", "stop", 1, 2, worker="silent"))
    found = costs.group_seconds([one, replace(two, turns=turns)])
    assert found == pytest.approx((6 * 0.5 + 2 * 2.0) * 11 / 8)


@pytest.mark.django_db
def test_where_no_worker_tells_a_price_nothing_is_learned() -> None:
    _worker("rollout-1", None)
    assert costs.group_seconds([trajectory("g")]) == 0.0


@pytest.mark.django_db
def test_a_beat_tells_the_price_of_a_token() -> None:
    stats = {"tokens_generated": 50, "busy_s": 5.0}
    heartbeat = Heartbeat("rollout", "rollout-1", ["tiny"], 8, lambda: stats)
    heartbeat.beat()
    assert Worker.objects.get().stats[costs.PRICE] == pytest.approx(0.1)
    silent = Heartbeat("training", "training-1", ["tiny"])
    silent.beat()
    assert Worker.objects.get(kind="training").stats == {}


@pytest.mark.django_db
@pytest.mark.usefixtures("redis")
def test_a_step_teaches_all_three_costs(task: Task) -> None:
    _worker("rollout-1", 0.5)
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
        found = [trajectory(group.pk, i) for i in range(2)]
        assert groups.finish_group(str(group.pk), 1, found, "environment-1")
    task.refresh_from_db()
    assert task.group_s == pytest.approx(6 * 0.5)
    assert task.mean_group_tokens == pytest.approx(8)
    assert 30 <= task.rollout_s < 60
    Step.objects.update(state="training", fence=1)
    taken: Any = passes.take_pass(step.pk, 1, "a", "training-1")
    taken.span.started_at -= timedelta(seconds=7)
    assert passes.commit_version(taken, "d1", "k1", 1, {})
    task.refresh_from_db()
    assert 7 <= task.pass_s < 60
