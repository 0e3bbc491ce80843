"""From repeated measurements to figures: medians, paired ratios, intervals. Pure."""

from __future__ import annotations

import random
import statistics
from collections.abc import Sequence
from math import exp

RESAMPLES = 10_000


def median_ratio(numerators: Sequence[float], denominators: Sequence[float]) -> float:
    """Median of the ratios of measurements taken one after the other, pair by pair.

    A machine that slows down for a while slows both of a pair. Raises: ValueError if they are not
    of the same number.
    """
    return statistics.median(a / b for a, b in zip(numerators, denominators, strict=True))


def bootstrap_interval(
    values: Sequence[float], confidence: float = 0.95, seed: int = 0
) -> tuple[float, float]:
    """Percentile bootstrap interval of the median of `values`."""
    rng = random.Random(seed)
    medians = sorted(
        statistics.median(rng.choices(values, k=len(values))) for _ in range(RESAMPLES)
    )
    tail = (1 - confidence) / 2
    return medians[int(tail * RESAMPLES)], medians[int((1 - tail) * RESAMPLES) - 1]


def cost(with_it: Sequence[float], without: Sequence[float]) -> float:
    """What something costs, in time per token: 0.2 is a fifth more time. Both in tokens/s."""
    return median_ratio(without, with_it) - 1


def kl_estimate(sampled: Sequence[float], reference: Sequence[float]) -> float:
    """Mean of exp(d) - d - 1, d = reference - sampled log-prob of each sampled token.

    Unbiased for KL(sampled from ‖ reference), and never negative. Source:
    joschu.net/blog/kl-approx.html, the estimator k3.
    """
    gaps = [b - a for a, b in zip(sampled, reference, strict=True)]
    return statistics.fmean(exp(d) - d - 1 for d in gaps)


def first_difference(a: Sequence[int], b: Sequence[int]) -> int | None:
    """Index of the first token in which two generations differ; None if they are the same."""
    for index, (x, y) in enumerate(zip(a, b, strict=False)):
        if x != y:
            return index
    return None if len(a) == len(b) else min(len(a), len(b))
