"""How many groups will have one and the same reward throughout, and so teach nothing.

Of few samples a prompt no rate is known well, so prompts are taken as draws from one population: a
beta distribution of solve rates, of which every shape on a grid is weighed by how well it explains
what was seen. The estimate is the mean over the weighed shapes, its range holds 90 % of the weight.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

_MEANS = tuple(1 / (1 + math.exp(-place / 3)) for place in range(-21, 22))  # 0.0009 … 0.9991
_SIZES = tuple(0.1 * 2 ** (place / 1.5) for place in range(16))  # alpha + beta: 0.1 … 102
_OUTSIDE = 0.05  # of the weight, on each side of the range


@dataclass(frozen=True)
class ZeroVariance:
    """Shares of groups whose rewards are all equal."""

    num_groups: int  # of at least two graded samples
    observed: float  # share, in groups of as many samples as were drawn
    expected: float  # share at the task's group_size
    low: float  # 90 % range of `expected`
    high: float
    group_size: int  # of the task
    is_bound: bool  # rewards are graded finely: `expected` is the most to be expected


def zero_variance(rewards_P_G: Sequence[Sequence[float]], group_size: int) -> ZeroVariance | None:
    """The estimate from sampled groups; None if no group has two rewards.

    rewards_P_G: graded samples, by prompt; ragged.
    """
    groups = [list(rewards) for rewards in rewards_P_G if len(rewards) > 1]
    if not groups:
        return None
    observed = sum(len(set(rewards)) == 1 for rewards in groups) / len(groups)
    values = sorted({reward for rewards in groups for reward in rewards})
    if len(values) > 2:
        expected = _mean_equal(groups, group_size)
        low, high = _interval(expected, len(groups))
        is_bound = group_size > max(map(len, groups))
        return ZeroVariance(
            len(groups), observed, expected, 0.0 if is_bound else low, high, group_size, is_bound
        )
    counts = Counter((rewards.count(values[-1]), len(rewards)) for rewards in groups)
    if len(values) == 1:  # whether it is the higher or the lower one matters not
        counts = Counter((0, len(rewards)) for rewards in groups)
    return ZeroVariance(len(groups), observed, *_estimate(counts, group_size), group_size, False)


def _estimate(counts: Counter[tuple[int, int]], group_size: int) -> tuple[float, float, float]:
    """(mean, low, high) of the share. counts: how many prompts solved k of n."""
    found = []
    for mean in _MEANS:
        for size in _SIZES:
            a, b = mean * size, (1 - mean) * size
            fit = sum(num * _log_chance(k, n, a, b) for (k, n), num in counts.items())
            # Jeffreys' prior of a rate; on the grid, which is even in log-odds
            prior = 0.5 * math.log(mean * (1 - mean))
            both = _log_chance(group_size, group_size, a, b), _log_chance(0, group_size, a, b)
            found.append((min(1.0, sum(map(math.exp, both))), fit + prior))
    top = max(weight for _, weight in found)
    weighed = sorted((share, math.exp(weight - top)) for share, weight in found)
    total = sum(weight for _, weight in weighed)
    mean_share = sum(share * weight for share, weight in weighed) / total
    return mean_share, _quantile(weighed, _OUTSIDE * total), _quantile(weighed, total * 0.95)


def _quantile(weighed: Sequence[tuple[float, float]], weight: float) -> float:
    passed = 0.0
    for share, one in weighed:
        passed += one
        if passed >= weight:
            return share
    return weighed[-1][0]


def _log_chance(k: int, n: int, a: float, b: float) -> float:
    """Log-probability of k of n, order aside, if rates are Beta(a, b): beta-binomial."""
    ways = math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)
    return ways + _log_beta(k + a, n - k + b) - _log_beta(a, b)


def _log_beta(a: float, b: float) -> float:
    return math.lgamma(a) + math.lgamma(b) - math.lgamma(a + b)


def _mean_equal(groups: Sequence[Sequence[float]], group_size: int) -> float:
    """Mean over prompts of the chance that samples drawn from the seen ones are all equal.

    Unbiased for groups of as many as are drawn: `group_size`, or all that were seen of the prompt.
    """
    return sum(_equal(rewards, min(group_size, len(rewards))) for rewards in groups) / len(groups)


def _equal(rewards: Sequence[float], num_drawn: int) -> float:
    ways = sum(math.comb(num, num_drawn) for num in Counter(rewards).values())
    return ways / math.comb(len(rewards), num_drawn)


def _interval(share: float, count: int) -> tuple[float, float]:
    """Wilson's 90 % interval of a share of `count`."""
    z = 1.6449
    centre = (share + z * z / (2 * count)) / (1 + z * z / count)
    spread = share * (1 - share) / count + z * z / (4 * count * count)
    half = z * math.sqrt(max(0.0, spread)) / (1 + z * z / count)
    return max(0.0, centre - half), min(1.0, centre + half)
