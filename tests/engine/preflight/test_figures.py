"""Lengths, samples and costs against numbers worked out by hand."""

from __future__ import annotations

import time
from typing import Any

import pytest

from engine.config import parse_config
from engine.preflight import (
    LengthCount,
    Outcome,
    Speeds,
    Timings,
    estimate_costs,
    summarise,
    timed,
)
from engine.preflight.figures import percent, row_list
from engine.rewards import grade_purely, grader_digest, parse_graders

GRADERS = parse_graders([{"type": "numeric", "weight": 2.0}, {"type": "length", "weight": -0.5}])


def _outcome(prompt: int, index: int, reward: float | None, **fields: Any) -> Outcome:
    scores = {"numeric": None if reward is None else reward / 2, "length": 0.0}
    made = {"num_tokens": 4, "num_turns": 1, "stop_reason": "stop", "rewards": scores, **fields}
    return Outcome(prompt, index, reward, **made)


def _summary(outcomes: list[Outcome], **latencies: list[float]) -> Any:
    return summarise(outcomes, GRADERS, max_new_tokens=8, is_shortened=False, latencies_s=latencies)


def test_lengths_are_ranks_and_offenders_are_named() -> None:
    count = LengthCount(limit=10)
    for row, length in enumerate([3, 11, 5, 7, 12], start=1):
        count.add(row, length)
    count.refuse(6, "no system messages")
    found = count.lengths(num_rows=100)
    assert (found.min, found.median, found.p95, found.max) == (3, 7, 12, 12)
    assert (found.num_over, found.over_rows) == (2, (2, 5))
    assert (found.num_looked_at, found.num_usable, found.refused_rows) == (6, 3, (6,))
    assert list(count.fitting) == [1, 3, 4]


def test_only_the_first_offenders_are_kept() -> None:
    count = LengthCount(limit=1)
    for row in range(1, 50):
        count.add(row, 2)
    found = count.lengths(num_rows=49)
    assert (found.num_over, len(found.over_rows)) == (49, 10)
    assert row_list(found.over_rows, found.num_over).endswith("10 and 39 more")


def test_rates_means_and_lengths_of_samples() -> None:
    found = _summary(
        [
            _outcome(0, 0, 2.0, num_tokens=2),
            _outcome(0, 1, 0.0, num_tokens=6, stop_reason="length", has_reference=True),
            _outcome(1, 0, 2.0),
            _outcome(1, 1, None, error="numeric: row has none"),
        ],
        numeric=[0.1, 0.2, 0.3],
    )
    assert found.full_reward == 2.0  # the negative weight can only take away
    assert found.solve_rate == pytest.approx(2 / 3)
    assert found.mean_reward == pytest.approx(4 / 3)
    assert found.reward_std_within == pytest.approx(1.0)  # of the one prompt with two grades
    assert (found.ungraded_share, found.ungraded_by_grader["numeric"]) == (0.25, 0.25)
    assert (found.truncated_share, found.length_median, found.length_max) == (0.25, 4, 6)
    assert (found.latency_p50_s["numeric"], found.latency_p95_s["numeric"]) == (0.2, 0.3)
    assert found.num_unsolved_with_reference == 1
    assert found.grading_errors == ("numeric: row has none",)


def test_what_was_not_generated_counts_for_nothing_else() -> None:
    failed = Outcome(0, 0, error="the adapter does not fit")
    found = _summary([failed, _outcome(0, 1, 2.0)])
    assert (found.num_samples, found.num_failed, found.failure) == (2, 1, failed.error)
    assert (found.solve_rate, found.ungraded_share) == (1.0, 0.0)


def test_calls_are_counted() -> None:
    found = _summary([_outcome(0, 0, 0.0, num_calls=3, num_failed_calls=1), _outcome(0, 1, 0.0)])
    assert found.valid_call_share == pytest.approx(2 / 3)
    assert found.calling_share == 0.5


def test_the_one_reward_that_all_got_is_told_and_the_most_common_failure_of_calls() -> None:
    failed = {"num_calls": 2, "num_failed_calls": 2}
    found = _summary(
        [
            _outcome(0, 0, 0.5, call_errors=("late", "gone"), **failed),
            _outcome(0, 1, 0.5, call_errors=("gone", "x" * 9_000), **failed),
            _outcome(0, 2, None),
        ]
    )
    assert found.constant_reward == 0.5
    assert (found.call_failure, found.num_call_failures) == ("gone", 2)
    assert _summary([_outcome(0, 0, 0.5), _outcome(0, 1, 1.0)]).constant_reward is None


def test_what_the_environment_said_is_told_apart_from_what_was_generated() -> None:
    cut = {"num_tokens": 20, "stop_reason": "length"}
    found = _summary([_outcome(0, 0, 0.0, num_observed=44, **cut), _outcome(0, 1, 0.0)])
    assert (found.length_max, found.observed_of_truncated, found.mean_observed) == (20, 44, 22)


def _costs(speeds: Speeds, per_day: int = 0, today: int = 0, least_trained: float = 1.0) -> Any:
    config = parse_config(
        {"batch_size": 2, "group_size": 4, "max_steps": 10, "max_completion_length": 100}
    )
    outcomes = [_outcome(0, 0, 1.0, num_tokens=20), _outcome(0, 1, 0.0, num_tokens=30)]
    outcomes[1] = _outcome(0, 1, 0.0, num_tokens=30, stop_reason="length", num_observed=10)
    return estimate_costs(
        outcomes,
        config,
        speeds,
        mean_prompt=50.0,
        num_prompts=40,
        tokens_per_day=per_day,
        tokens_today=today,
        least_trained=least_trained,
    )


def test_tokens_of_a_step_range_from_what_was_seen_to_what_was_cut_off() -> None:
    """8 sequences of 25 tokens, of 55 if the cut one goes on to 90; 2 prompts of 50, 8 x 5 read."""
    found = _costs(Speeds(tokens_per_s=0.0))
    assert (found.step_generated_low, found.step_generated_high) == (200, 440)
    assert (found.step_tokens_low, found.step_tokens_high) == (340, 580)
    assert (found.task_tokens_low, found.epochs) == (3_400, 0.5)
    assert (found.seconds_low, found.days_low, found.tokens_left_today) == (None, None, None)


def test_time_ranges_from_what_was_seen_to_longer_completions_and_sharing() -> None:
    found = _costs(Speeds(tokens_per_s=100.0, num_other_tasks=1, train_tokens_per_s=44.0))
    assert found.seconds_low == pytest.approx(10 * (200 / 200 + 200 / 44))
    assert found.seconds_high == pytest.approx(5 + 10 * (2 * 440 / 100 + 440 / 44))


def test_only_a_batch_larger_than_the_check_can_be_faster() -> None:
    """8 sequences a step: against 8 at once not faster, against 6 by a third, against 2 twice."""
    for at_once, faster in ((8, 1), (6, 8 / 6), (2, 2), (16, 1)):
        found = _costs(Speeds(100.0, num_at_once=at_once, train_tokens_per_s=40.0))
        assert found.seconds_low == pytest.approx(10 * (200 / (100 * faster) + 200 / 40))


def test_groups_that_teach_nothing_are_not_trained_on_and_make_the_least_time_shorter() -> None:
    found = _costs(Speeds(100.0, train_tokens_per_s=40.0), least_trained=0.25)
    assert found.seconds_low == pytest.approx(10 * (200 / 200 + 0.25 * 200 / 40))
    assert found.seconds_high == pytest.approx(5 + 10 * (440 / 100 + 440 / 40))


def test_where_nothing_was_trained_lately_a_pass_reads_every_prompt_with_every_trajectory() -> None:
    """8 sequences of 50 + 5 read and 55 generated tokens, two in the time of a generated one.

    At the least 2 prompts of 50, and 8 times 5 read and 25 generated; 16 in that time.
    """
    found = _costs(Speeds(tokens_per_s=100.0))
    assert found.seconds_low == pytest.approx(10 * (200 / 200 + (2 * 50 + 8 * (5 + 25)) / 1600))
    assert found.seconds_high == pytest.approx(5 + 10 * (440 / 100 + 8 * (50 + 5 + 55) / 200))


def test_a_quota_stretches_the_task_over_days() -> None:
    found = _costs(Speeds(0.0), per_day=1_000, today=600)
    assert found.tokens_left_today == 400
    assert (found.days_low, found.days_high) == (4, 7)  # 400 + 3 x 1000; 400 + 6 x 1000


def test_timed_graders_score_as_before_and_note_each_score() -> None:
    timings = Timings()
    graders = parse_graders([{"type": "numeric"}])
    watched = timed(graders, timings)
    assert grader_digest(watched) == grader_digest(graders)
    assert grade_purely(watched, "it is 4", {"answer": "4"}).reward == 1.0
    assert grade_purely(watched, "it is 4", {}).reward is None
    assert len(timings.by_grader["numeric"]) == 2
    assert 0 < timings.by_grader["numeric"][0] < time.perf_counter()


@pytest.mark.parametrize(
    ("share", "text"),
    [(0, "0 %"), (1, "100 %"), (0.004, "0.4 %"), (0.999, "99.9 %"), (0.5, "50 %")],
)
def test_shares_are_never_rounded_to_nothing_or_everything(share: float, text: str) -> None:
    assert percent(share) == text
