"""Estimates against numbers worked out by hand."""

import math
from dataclasses import replace

import pytest

from jobs.services.estimates import (
    DRIFT,
    EIGHTY,
    GUESSED_SPREAD,
    HELD_AGAIN,
    NEVER,
    SOME_DAY,
    Facts,
    Range,
    left_of,
    spread_of,
    start_left,
    step_left,
    task_left,
    told,
    told_when,
    why_no_step,
    why_no_task,
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
    """9 more of about 100 s; chance evens out, the mean of three and the drift do not."""
    one, ten = task_left(FACTS), task_left(replace(FACTS, steps_left=10))
    assert one == step_left(FACTS)
    assert one is not None and ten is not None
    error = EIGHTY * math.hypot(0.1 * math.sqrt(1 / 9 + 1 / 3), DRIFT)
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
    assert start_left(ends, 0) is None
    assert start_left([], 1) is None


def test_behind_more_than_run_nobody_knows_a_bound_but_the_first_end_comes_before() -> None:
    assert start_left([Range(30, 60), Range(10, 90)], 3) == Range(10, math.inf)


def test_an_end_that_nobody_knows_widens_the_range_and_one_that_is_paused_counts_as_never() -> None:
    known = Range(10, 20)
    assert start_left([known, SOME_DAY], 1) == Range(0, 20)
    assert start_left([known, SOME_DAY], 2) == Range(10, math.inf)
    assert start_left([known, NEVER], 1) == known
    assert start_left([known, NEVER], 2) is None
    assert start_left([SOME_DAY], 1) is None


HELD = replace(FACTS, is_held=True)


def test_a_step_that_is_held_back_waits_as_long_as_the_tasks_commits_lie_apart_otherwise() -> None:
    """100 s less 60 of rollout and 20 of training are 20 s, ± 12.8 s; 5 have passed."""
    begun, held = step_left(FACTS), step_left(replace(HELD, held_s=5.0, round_s=15.0))
    assert begun is not None and held is not None
    assert held.low_s - begun.low_s == pytest.approx(20 - 100 * SPREAD - 5)
    assert held.high_s - begun.high_s == pytest.approx(20 + 100 * SPREAD - 5)


def test_it_may_wait_until_the_trainers_have_done_a_step_of_everybodys() -> None:
    begun, held = step_left(FACTS), step_left(replace(HELD, held_s=5.0, round_s=200.0))
    assert begun is not None and held is not None
    assert held.high_s - begun.high_s == pytest.approx(200 - 5)


def test_the_longer_it_was_held_beyond_what_is_usual_the_longer_it_may_be_yet() -> None:
    steps = [step_left(replace(HELD, held_s=held_s)) for held_s in (100.0, 200.0)]
    first, second = steps
    assert first is not None and second is not None
    assert second.high_s - first.high_s == pytest.approx(HELD_AGAIN * 100)
    tasks = [
        task_left(replace(HELD, held_s=held_s, steps_left=10)) for held_s in (0.0, 100.0, 200.0)
    ]
    highs = [found.high_s for found in tasks if found]
    assert len(highs) == 3 and highs == sorted(highs)
    assert highs[2] - highs[1] > HELD_AGAIN * 100 + 9 * 100  # so may all that follow


def test_four_of_five_looks_at_a_hold_of_unknown_length_lie_in_the_range() -> None:
    """113 s, of a task that was never held before: what is left of it, asked every second."""
    facts = replace(HELD, rollout_s=8.0, pass_s=4.0, cycles_s=(12.0, 11.5, 12.5))
    inside = 0
    for held_s in range(113):
        found = step_left(replace(facts, held_s=float(held_s)))
        assert found is not None
        inside += found.low_s <= 113 - held_s + 12 <= found.high_s
    assert inside >= 0.8 * 113


@pytest.mark.parametrize(
    ("facts", "why"),
    [
        (
            replace(HELD, held_s=50.0, num_preferred=1),
            "1 of your tasks with higher priority goes first",
        ),
        (
            replace(HELD, held_s=50.0, num_preferred=2),
            "2 of your tasks with higher priority go first",
        ),
        (replace(FACTS, bar="your organisation is suspended"), "your organisation is suspended"),
        (replace(FACTS, stage="ready", bar="it must wait"), "it must wait"),
        (replace(FACTS, pass_s=0.0), "no step was trained yet"),
        (replace(FACTS, steps_left=0), "all steps are done, and the task is about to end"),
    ],
)
def test_where_nothing_bounds_the_wait_a_sentence_says_why(facts: Facts, why: str) -> None:
    assert step_left(facts) is None
    assert task_left(facts) is None
    assert why_no_step(facts) == why_no_task(facts) == f"nobody can say: {why}"


def test_a_higher_priority_counts_once_the_wait_is_longer_than_usual() -> None:
    assert step_left(replace(HELD, held_s=20.0, num_preferred=1)) is not None


def test_what_is_begun_ends_though_the_task_may_begin_no_more() -> None:
    barred = replace(FACTS, stage="training", bar="it must wait", steps_left=3)
    assert step_left(barred) == step_left(replace(barred, bar=""))
    assert (task_left(barred), why_no_task(barred)) == (None, "nobody can say: it must wait")
    assert task_left(replace(barred, steps_left=1)) is not None
    full = replace(FACTS, later_bar="the quota is used", steps_left=3)
    assert step_left(full) == step_left(FACTS)
    assert (task_left(full), why_no_task(full)) == (None, "nobody can say: the quota is used")


def test_a_bar_that_ends_at_a_known_time_is_told_by_it() -> None:
    why = "not before 00:00 UTC: the quota is used"
    assert why_no_step(replace(FACTS, stage="none", bar=why)) == why
    assert why_no_task(replace(FACTS, later_bar=why, steps_left=3)) == why


def test_what_is_only_known_of_others_tasks_may_take_several_times_as_long() -> None:
    found = step_left(replace(FACTS, cycles_s=(), is_guessed=True))
    _about(found, 0.0, 80 * (1 + EIGHTY * GUESSED_SPREAD))


@pytest.mark.parametrize(
    ("low", "high", "text"),
    [
        (40, 90, "40–90 s"),
        (0, 4.4, "up to 4 s"),
        (0.2, 0.3, "up to 1 s"),
        (0, 144, "up to 2.4 min"),
        (40, math.inf, "at least 40 s"),
        (4320, math.inf, "at least 72 min"),
        (50.2, 50.4, "about 50 s"),
        (150, 330, "2.5–5.5 min"),
        (600, 1800, "10–30 min"),
        (4320, 5760, "1.2–1.6 h"),
        (100_000, 200_000, "1.2–2.3 days"),
    ],
)
def test_a_range_is_told_in_one_unit(low: float, high: float, text: str) -> None:
    assert told(Range(low, high)) == text


@pytest.mark.parametrize(
    ("low", "high", "text"),
    [(40, 90, "in 40–90 s"), (0, 144, "within 2.4 min"), (40, math.inf, "in at least 40 s")],
)
def test_a_moment_is_told_as_one_reads_it(low: float, high: float, text: str) -> None:
    assert told_when(Range(low, high)) == text
