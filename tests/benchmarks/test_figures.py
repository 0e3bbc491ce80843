"""Figures from measurements, against numbers worked out by hand."""

from __future__ import annotations

import math
import random

import pytest

from benchmarks.rollout.figures import (
    bootstrap_interval,
    cost,
    first_difference,
    kl_estimate,
    median_ratio,
)


def test_ratios_are_taken_pair_by_pair_before_their_median() -> None:
    # A slow minute halves both of the second pair: the ratio of medians would be 20 / 10.
    assert median_ratio([20, 9, 21], [10, 4, 7]) == 2.25


def test_ratios_of_unequal_numbers_are_refused() -> None:
    with pytest.raises(ValueError):
        median_ratio([1, 2], [1])


def test_cost_is_time_per_token_and_not_lost_throughput() -> None:
    assert cost([50, 50, 50], [100, 100, 100]) == 1.0


def test_the_interval_holds_the_median_and_narrows_where_values_agree() -> None:
    rng = random.Random(1)
    wide = [1 + rng.gauss(0, 0.1) for _ in range(12)]
    low, high = bootstrap_interval(wide)
    assert low < 1.0 < high
    assert bootstrap_interval([0.98] * 12) == (0.98, 0.98)


def test_the_estimate_of_kl_approaches_its_true_value() -> None:
    p, q = 0.7, 0.6  # of the first of two tokens
    true = p * math.log(p / q) + (1 - p) * math.log((1 - p) / (1 - q))
    rng = random.Random(2)
    draws = [rng.random() < p for _ in range(200_000)]
    sampled = [math.log(p if first else 1 - p) for first in draws]
    reference = [math.log(q if first else 1 - q) for first in draws]
    assert kl_estimate(sampled, reference) == pytest.approx(true, rel=0.03)
    assert kl_estimate(sampled, sampled) == 0.0


def test_the_first_difference_of_two_generations() -> None:
    assert first_difference([1, 2, 3], [1, 2, 3]) is None
    assert first_difference([1, 2, 3], [1, 5, 3]) == 1
    assert first_difference([1, 2], [1, 2, 3]) == 2
