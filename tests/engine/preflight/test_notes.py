"""Figures that seem to contradict each other are told how they relate."""

from __future__ import annotations

from dataclasses import replace

from engine.preflight import Speeds, estimate_costs, zero_variance
from engine.preflight.notes import notes

from .reports import make_outcomes, make_report


def _of_variance(rewards: list[list[float]], group_size: int) -> str:
    (note,) = notes(None, zero_variance(rewards, group_size), None, "")
    return note


def test_what_was_seen_and_what_is_expected_are_related_in_one_sentence() -> None:
    note = _of_variance([[0.5] * 8] * 12, 8)
    found = zero_variance([[0.5] * 8] * 12, 8)
    assert found
    assert "Of the 12 groups of this check 100 % had one reward throughout" in note
    assert f"all groups of 8 in training about {round(100 * found.expected)} %" in note
    assert "fewer than were seen" in note
    assert "more than were seen" in _of_variance([[1.0, 0.0] * 4] * 12, 2)
    assert "at most 50 %" in _of_variance([[0, 0, 1, 2], [1, 1, 1, 1]], 8)
    assert "as many as were seen" in _of_variance([[0, 0, 1, 2], [1, 1, 1, 1]], 8)


def test_tokens_of_tool_results_are_told_beside_lengths() -> None:
    samples = make_report(num_observed=45).samples
    (note,) = notes(samples, None, None, "tool results")
    assert "tool results are 45 more tokens on average" in note
    assert "the limit of 64" in note
    assert notes(make_report().samples, None, None, "tool results") == ()


def test_a_wide_range_of_time_is_explained_and_a_narrow_one_is_not() -> None:
    config = make_report(config={"max_completion_length": 500, "max_steps": 100}).config
    numbers = {"mean_prompt": 9.0, "num_prompts": 40, "tokens_per_day": 0, "tokens_today": 0}
    cut = make_outcomes([[1.0]], stop_reason="length")
    costs = estimate_costs(cut, config, Speeds(10.0, num_other_tasks=2), **numbers)
    assert costs
    (note,) = notes(None, None, costs, "")
    assert "cut off go on to max_completion_length, and if the other tasks" in note
    assert "nothing was trained lately" in note
    (known,) = notes(None, None, replace(costs, num_other_tasks=0, train_tokens_per_s=5.0), "")
    assert known.endswith(
        "only if completions that this check cut off go on to max_completion_length."
    )
    narrow = estimate_costs(
        make_outcomes([[1.0]]), config, Speeds(10.0, 32, train_tokens_per_s=5.0), **numbers
    )
    assert notes(None, None, narrow, "") == ()
