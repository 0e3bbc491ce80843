"""The expected share of groups without a signal: by hand, and against populations made to order."""

from __future__ import annotations

import random

import pytest

from engine.preflight import zero_variance


def test_rates_far_from_the_ends_leave_few_groups_without_a_signal() -> None:
    found = zero_variance([[1, 0] * 4] * 16, group_size=8)
    assert found and (found.observed, found.num_groups) == (0.0, 16)
    assert found.low <= 2 * 0.5**8 + 0.02  # p = 1/2 throughout: 2 / 2^8
    assert found.expected < 0.04


def test_a_group_of_two_at_even_odds_is_equal_half_the_time() -> None:
    found = zero_variance([[1, 0] * 4] * 16, group_size=2)
    assert found and found.low < 0.53
    assert found.expected == pytest.approx(0.52, abs=0.03)


def test_prompts_that_are_always_or_never_solved_stay_without_a_signal() -> None:
    found = zero_variance([[1] * 8] * 8 + [[0] * 8] * 8, group_size=8)
    assert found and found.observed == 1.0
    assert 0.85 < found.expected < 1.0
    assert found.low < found.expected < found.high <= 1.0


def test_nothing_seen_is_not_taken_for_never() -> None:
    found = zero_variance([[0.0] * 4] * 4, group_size=64)
    assert found and found.observed == 1.0
    assert found.low < 0.8  # rates of a few in a hundred explain 16 zeros as well


def test_rewards_of_many_values_are_counted_as_they_fell() -> None:
    """(0, 0, 1, 2): of 6 pairs one is equal; (1, 1, 1, 1): all are."""
    found = zero_variance([[0, 0, 1, 2], [1, 1, 1, 1]], group_size=2)
    assert found and not found.is_bound
    assert found.expected == pytest.approx((1 / 6 + 1) / 2)
    larger = zero_variance([[0, 0, 1, 2], [1, 1, 1, 1]], group_size=8)
    assert larger and larger.is_bound
    assert (larger.expected, larger.low) == (0.5, 0.0)


def test_single_samples_say_nothing() -> None:
    assert zero_variance([[1.0], [0.0], []], group_size=8) is None


@pytest.mark.parametrize(("alpha", "beta"), [(0.3, 0.6), (2.0, 2.0), (0.5, 8.0), (6.0, 1.0)])
def test_the_range_holds_the_truth_of_most_populations(alpha: float, beta: float) -> None:
    """The truth by simulation; 90 % ranges of 16 x 8 samples should hold it nine times in ten."""
    rng = random.Random(f"{alpha}:{beta}")
    rates = [rng.betavariate(alpha, beta) for _ in range(200_000)]
    truth = sum(rate**8 + (1 - rate) ** 8 for rate in rates) / len(rates)
    held = 0
    for _ in range(40):
        drawn = [rng.betavariate(alpha, beta) for _ in range(16)]
        groups = [[float(rng.random() < rate) for _ in range(8)] for rate in drawn]
        found = zero_variance(groups, 8)
        assert found
        held += found.low <= truth <= found.high
    assert held >= 32
