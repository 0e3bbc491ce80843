"""Policy-gradient losses: a clipped surrogate a token, and how tokens are averaged.

The ratio is against the *sampled* log-probs, those that the rollout engine reported, so that what
differs between engine and trainer is corrected for too, and so is a batch that an older version of
the policy generated: the ratio is then the importance weight of the version that is trained over
the one that sampled, token by token, bounded by the clip.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

SequenceWeights = Callable[[Sequence[int], int], list[float]]
"""(trained tokens of each sequence, max_completion_length) to the weight of each one's tokens."""


def grpo_weights(lengths: Sequence[int], max_completion_length: int) -> list[float]:
    """Mean over sequences of the mean over their tokens. Source: arXiv:2402.03300."""
    return [1 / (len(lengths) * max(length, 1)) for length in lengths]


def dr_grpo_weights(lengths: Sequence[int], max_completion_length: int) -> list[float]:
    """Sum over tokens by a constant: no bias for short answers. Source: arXiv:2503.20783."""
    return [1 / (len(lengths) * max_completion_length)] * len(lengths)


def dapo_weights(lengths: Sequence[int], max_completion_length: int) -> list[float]:
    """Mean over all tokens of the batch. Source: arXiv:2503.14476."""
    return [1 / max(sum(lengths), 1)] * len(lengths)


LOSSES: dict[str, SequenceWeights] = {
    "grpo": grpo_weights,
    "dr_grpo": dr_grpo_weights,
    "dapo": dapo_weights,
}


@dataclass(frozen=True)
class Surrogate:
    """The loss of some tokens, and how often the clip held them back."""

    loss: Tensor  # scalar, differentiable
    clipped_low: int  # tokens with a negative advantage whose ratio was below 1 - epsilon
    clipped_high: int  # tokens with a positive advantage whose ratio was above 1 + epsilon_high


def clipped_surrogate(
    logprobs: Tensor,
    sampled: Tensor,
    advantages: Tensor,
    weights: Tensor,
    epsilon: float,
    epsilon_high: float,
) -> Surrogate:
    """Sum over tokens of -weight · min(ratio · A, clip(ratio) · A). All tensors: float32 (N).

    Source: arXiv:1707.06347 equation 7, with the two bounds of arXiv:2503.14476.
    """
    ratio = (logprobs - sampled).exp()
    clipped = ratio.clamp(1 - epsilon, 1 + epsilon_high)
    loss = -(weights * torch.minimum(ratio * advantages, clipped * advantages)).sum()
    low = (ratio < 1 - epsilon) & (advantages < 0)
    high = (ratio > 1 + epsilon_high) & (advantages > 0)
    return Surrogate(loss, int(low.sum()), int(high.sum()))


def k3(logprobs: Tensor, others: Tensor) -> Tensor:
    """A non-negative estimate a token of KL(p || q), for tokens drawn from p.

    logprobs: of p; others: of q. Source: joschu.net/blog/kl-approx.html, "k3".
    """
    difference = others - logprobs
    return difference.exp() - 1 - difference
