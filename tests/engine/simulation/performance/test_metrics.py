"""Figures of the schedule benchmarks against numbers worked out by hand."""

from __future__ import annotations

import pytest

from engine.simulation.performance.metrics import (
    Span,
    StepTime,
    TaskTime,
    Utilisation,
    end_to_end_s,
    first_step_s,
    jain,
    percentile,
    pool_busy,
    rollout_occupancy,
    slowdowns,
    step_latencies_s,
    steps_per_hour,
    union,
    utilisation,
)


def step(task: str, number: int, opened_at: float, committed_at: float) -> StepTime:
    return StepTime(task, number, opened_at, opened_at, committed_at, committed_at, committed_at)


def test_steps_per_hour_counts_commits_within_the_window_only() -> None:
    steps = [step("a", n, 10.0 * n, 10.0 * n + 10) for n in range(5)]  # commits at 10, 20, … 50
    assert steps_per_hour(steps, (10, 40)) == 3 * 3600 / 30


def test_a_worker_is_busy_once_while_its_spans_overlap() -> None:
    spans = [
        Span("a", "rollout", "w1", 0, 6),
        Span("b", "rollout", "w1", 4, 8),
        Span("c", "rollout", "w2", 9, 30),
        Span("d", "training", "w3", 0, 10),
    ]
    assert pool_busy(spans, "rollout", 2, (0, 10)) == (8 + 1) / 20


def test_occupancy_is_tokens_in_the_window_over_those_at_the_best_rate() -> None:
    spans = [Span("a", "rollout", "w", 0, 10, 100), Span("b", "rollout", "w", 15, 25, 40)]
    assert rollout_occupancy(spans, 1, 10.0, (0, 20)) == pytest.approx((100 + 20) / 200)


def test_utilisation_counts_the_pools_alike_and_idle_is_the_rest() -> None:
    found = Utilisation(rollout_busy=0.8, training_busy=0.4, rollout_occupancy=0.2)
    assert (found.busy, found.occupancy, found.idle) == pytest.approx((0.6, 0.3, 0.4))
    spans = [Span("a", "rollout", "w", 0, 5, 25), Span("a", "training", "t", 5, 10)]
    assert utilisation(spans, 1, 1, 10.0, (0, 10)) == Utilisation(0.5, 0.5, 0.25)


def test_time_to_first_step_counts_from_submission() -> None:
    steps = [step("a", 0, 3, 12), step("a", 1, 12, 20), step("b", 0, 9, 30)]
    tasks = [TaskTime("a", "t", "gsm", 2, 20), TaskTime("b", "t", "gsm", 4, 30)]
    assert first_step_s(steps, tasks) == {"a": 10, "b": 26}
    assert end_to_end_s(tasks) == 28


def test_a_step_lasts_from_the_commit_before_it() -> None:
    steps = [step("a", 1, 5, 20), step("a", 0, 3, 12), step("b", 0, 9, 30)]
    assert step_latencies_s(steps) == [9, 8, 21]


def test_slowdown_is_against_the_same_task_alone() -> None:
    tasks = [TaskTime("a", "t", "gsm", 0, 30), TaskTime("b", "t", "amc", 10, 30)]
    assert slowdowns(tasks, {"a": 10, "b": 20}) == [3, 1]


def test_jain_is_one_for_equal_shares_and_one_by_n_when_one_has_all() -> None:
    assert jain([5, 5, 5]) == 1
    assert jain([7, 0, 0, 0]) == 0.25
    assert jain([1, 3]) == pytest.approx(16 / 20)


def test_percentiles_are_values_that_were_seen() -> None:
    values = [float(n) for n in range(20, 0, -1)]
    assert (percentile(values, 0.5), percentile(values, 0.95), percentile(values, 1)) == (
        10,
        19,
        20,
    )


def test_intervals_that_touch_or_overlap_are_one() -> None:
    assert union([(5, 6), (0, 2), (1, 3), (3, 4), (9, 8), (7, 7)]) == [(0, 4), (5, 6)]
