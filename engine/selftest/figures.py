"""How far two sets of log-probs of the same tokens lie apart. No torch."""

from __future__ import annotations

import math
from collections.abc import Sequence

Logprobs = Sequence[Sequence[float]]
"""Of B sequences, ragged."""


def max_difference(a: Logprobs, b: Logprobs) -> float:
    """NaN if one of them is not finite, or there is nothing to compare."""
    differences = [abs(x) for x in _differences(a, b)]
    return max(differences) if differences and all(map(math.isfinite, differences)) else math.nan


def mean_kl(sampled: Logprobs, other: Logprobs) -> float:
    """KL(sampled ‖ other) a token, estimated on tokens drawn from `sampled`.

    The k3 estimator, exp(d) - 1 - d with d = other - sampled: never negative, so that differences
    do not cancel. NaN as in `max_difference`. Source: joschu.net/blog/kl-approx.html.
    """
    terms = [_k3(d) for d in _differences(other, sampled)]
    return sum(terms) / len(terms) if terms else math.nan


def _differences(a: Logprobs, b: Logprobs) -> list[float]:
    pairs = zip(a, b, strict=True)
    return [x - y for xs, ys in pairs for x, y in zip(xs, ys, strict=True)]


def _k3(d: float) -> float:
    """Infinite for differences past any reason, so that one of them is not lost in a mean."""
    return math.inf if d > 700 else math.expm1(d) - d


def common_length(a: Sequence[int], b: Sequence[int]) -> int:
    """Tokens that two sequences begin with alike."""
    length = 0
    for x, y in zip(a, b, strict=False):
        if x != y:
            break
        length += 1
    return length
