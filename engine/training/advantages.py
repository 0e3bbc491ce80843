"""Rewards of groups to advantages. No torch."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

STD_FLOOR = 1e-3  # for rewards of order 1; a smaller spread is noise that must not be blown up
EQUAL_WITHIN = 1e-6  # rewards that differ by less, relative to their size, count as equal


@dataclass(frozen=True)
class Advantages:
    """What each trajectory's tokens are weighted with, and what the groups looked like."""

    values_P_G: list[list[float]]
    zero_variance_P: list[bool]  # groups that teach nothing: fewer than two different rewards
    std_P: list[float]  # sample standard deviation of the graded; 0.0 with fewer than two


def group_advantages(
    rewards_P_G: Sequence[Sequence[float | None]], scale_rewards: str = "group"
) -> Advantages:
    """Centre each prompt's rewards on their own mean, and divide by a standard deviation.

    rewards_P_G: None is ungraded: it enters no mean and gets advantage 0. scale_rewards: "group"
    and "batch" divide by the sample deviation of the group's, or all, graded rewards; "none" does
    not. A group without variance gets zeros. Raises: ValueError for a reward that is not finite.
    Source: arXiv:2402.03300 section 4.1; "none" as in arXiv:2503.20783; "batch" as in
    arXiv:2508.08221.
    """
    graded_P = [[r for r in rewards if r is not None] for rewards in rewards_P_G]
    if not all(math.isfinite(reward) for graded in graded_P for reward in graded):
        raise ValueError("a reward is not a finite number")
    std_P = [_std(graded) for graded in graded_P]
    zero_P = [_is_constant(graded) for graded in graded_P]
    batch_std = _std([reward for graded in graded_P for reward in graded])
    values_P_G = []
    for rewards, graded, std, is_zero in zip(rewards_P_G, graded_P, std_P, zero_P, strict=True):
        divisor = {"group": std, "batch": batch_std, "none": 1.0}[scale_rewards]
        mean = math.fsum(graded) / len(graded) if graded else 0.0
        values_P_G.append(
            [0.0 if is_zero or r is None else (r - mean) / max(divisor, STD_FLOOR) for r in rewards]
        )
    return Advantages(values_P_G, zero_P, std_P)


def _std(values: Sequence[float]) -> float:
    """Sample standard deviation (n - 1); 0.0 for fewer than two."""
    if len(values) < 2:
        return 0.0
    mean = math.fsum(values) / len(values)
    return math.sqrt(math.fsum((v - mean) ** 2 for v in values) / (len(values) - 1))


def _is_constant(values: Sequence[float]) -> bool:
    if len(values) < 2:
        return True
    return max(values) - min(values) <= EQUAL_WITHIN * max(1.0, *(abs(v) for v in values))
