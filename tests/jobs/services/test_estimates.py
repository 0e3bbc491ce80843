"""Estimates against numbers worked out by hand."""

import math
from dataclasses import replace

import pytest

from jobs.services.estimates import (
    EIGHTY,
    Facts,
    Range,
    left_of,
    spread_of,
    start_left,
    step_left,
    task_left,
    told,
)

# Three cycles of 90, 100, 110 s: mean 100, standard deviation 10
FACTS = Facts(
    steps_left=1, stage="open", rollout_s=60.0, pass_s=20.0, cycles_s=(90.0, 100.0, 110.0)
)
SPREAD = EIGHTY * 0.1


def _about(found: Range | None, low_s: float, high_s: float) -> None:
    assert found is not None
    assert (found.low_s, found.high_s) == pytest.approx((low_s, high_s))


def test_the_spread_is_that_of_what_was_seen_and_wide_before() -> None:
    assert spread_of([90, 100, 110]) == pytest.approx(0.1)
    assert spread_of([100, 100, 100, 100]) == 0.1
    assert spread_of([50, 150]) == 0.5


def test_of_a_rollout_the_rest_and_the_line_and_the_pass_are_left() -> None:
    """60 s of which 20 have passed; up to 15 s of line; 20 s of training; each ± 12.8 %."""
    found = step_left(replace(FACTS, elapsed_s=20.0, line_s=15.0))
    low = 60 * (1 - SPREAD) - 20 + 20 * (1 - SPREAD)
    _about(found, low, 60 * (1 + SPREAD) - 20 + 15 + 20 * (1 + SPREAD))


def test_a_ready_step_waits_for_the_whole_line() -> None:
    found = step_left(replace(FACTS, stage="ready", line_s=15.0, elapsed_s=99.0))
    _about(found, 15 + 20 * (1 - SPREAD), 15 + 20 * (1 + SPREAD))


def test_of_a_pass_under_way_the_rest_is_left() -> None:
    found = step_left(replace(FACTS, stage="training", elapsed_s=18.0, line_s=500.0))
    _about(found, 0.0, 20 * (1 + SPREAD) - 18)


def test_what_is_late_may_be_later_by_half_of_that() -> None:
    _about(left_of(60.0, 0.1, 160.0), 0.0, 50.0)


def test_the_steps_after_this_one_take_as_long_as_the_last_ones() -> None:
    """9 more of about 100 s; chance evens out, the mean of three does not."""
    one, ten = task_left(FACTS), task_left(replace(FACTS, steps_left=10))
    assert one == step_left(FACTS)
    assert one is not None and ten is not None
    error = EIGHTY * 0.1 * math.sqrt(1 / 9 + 1 / 3)
    assert ten.low_s - one.low_s == pytest.approx(900 * (1 - error))
    assert ten.high_s - one.high_s == pytest.approx(900 * (1 + error))


def test_before_a_step_was_trained_nobody_can_say() -> None:
    assert step_left(replace(FACTS, pass_s=0.0)) is None
    assert task_left(replace(FACTS, rollout_s=0.0)) is None


def test_with_one_step_seen_its_costs_are_taken_and_the_range_is_wide() -> None:
    found = task_left(replace(FACTS, steps_left=3, cycles_s=()))
    assert found is not None
    assert found.low_s < 80 * 3 < found.high_s
    assert found.high_s > 1.5 * 80 * 3


def test_a_queued_task_begins_when_as_many_of_its_tenants_have_ended() -> None:
    ends = [Range(30, 60), Range(10, 90), Range(200, 300)]
    assert start_left(ends, 1) == Range(10, 60)
    assert start_left(ends, 2) == Range(30, 90)
    assert start_left(ends, 4) is None
    assert start_left([Range(10, 20), None], 1) is None
    assert start_left(ends, 0) is None


@pytest.mark.parametrize(
    ("low", "high", "text"),
    [
        (40, 90, "40–90 s"),
        (0, 4.4, "0–4 s"),
        (50.2, 50.4, "about 50 s"),
        (150, 330, "2.5–5.5 min"),
        (600, 1800, "10–30 min"),
        (4320, 5760, "1.2–1.6 h"),
        (100_000, 200_000, "1.2–2.3 days"),
    ],
)
def test_a_range_is_told_in_one_unit(low: float, high: float, text: str) -> None:
    assert told(Range(low, high)) == text
