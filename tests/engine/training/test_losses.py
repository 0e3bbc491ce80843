"""Losses against numbers worked out by hand."""

from __future__ import annotations

import math

import pytest
import torch

from engine.training.logprobs import token_logprobs
from engine.training.losses import LOSSES, clipped_surrogate, k3


def test_token_weights_are_those_of_each_loss() -> None:
    """Two sequences of 2 and 6 tokens, at most 10."""
    assert LOSSES["grpo"]([2, 6], 10) == [1 / 4, 1 / 12]
    assert LOSSES["dr_grpo"]([2, 6], 10) == [1 / 20, 1 / 20]
    assert LOSSES["dapo"]([2, 6], 10) == [1 / 8, 1 / 8]


def test_the_surrogate_clips_by_sign_and_side() -> None:
    """Ratios 1.5 and 0.5 under both signs, bounds 0.8 and 1.3, weights 1 2 3 4:
    min(1.5, 1.3) 1 + min(-1.5, -1.3) 2 + min(0.5, 0.8) 3 + min(-0.5, -0.8) 4 = -3.4."""
    ratios = torch.tensor([1.5, 1.5, 0.5, 0.5])
    sampled = torch.tensor([-1.0, -2.0, -3.0, -4.0])
    logprobs = (sampled + ratios.log()).requires_grad_()
    result = clipped_surrogate(
        logprobs,
        sampled,
        torch.tensor([1.0, -1.0, 1.0, -1.0]),
        torch.tensor([1.0, 2.0, 3.0, 4.0]),
        epsilon=0.2,
        epsilon_high=0.3,
    )
    assert result.loss.item() == pytest.approx(3.4, abs=1e-6)
    assert (result.clipped_low, result.clipped_high) == (1, 1)
    result.loss.backward()  # clipped tokens push nothing; else d/dlogp = -weight · ratio · A
    assert logprobs.grad is not None
    assert logprobs.grad.tolist() == pytest.approx([0.0, 3.0, -1.5, 0.0], abs=1e-6)


def test_k3_is_what_its_formula_says() -> None:
    """p = 1/2, q = 1/4: q/p - 1 - ln(q/p) = ln 2 - 1/2."""
    value = k3(torch.tensor([math.log(0.5)]), torch.tensor([math.log(0.25)]))
    assert float(value) == pytest.approx(math.log(2) - 0.5, abs=1e-6)


def test_token_logprobs_and_their_gradient_are_those_of_log_softmax() -> None:
    torch.manual_seed(0)
    hidden = torch.randn(600, 8, dtype=torch.float64, requires_grad=True)
    head, targets = torch.randn(50, 8, dtype=torch.float64), torch.randint(0, 50, (600,))
    weights = torch.randn(600, dtype=torch.float64)
    logp = (hidden @ head.T / 0.7).log_softmax(-1)
    wanted = logp.gather(1, targets[:, None])[:, 0]
    (slope,) = torch.autograd.grad((wanted * weights).sum(), hidden)
    got, entropy = token_logprobs(hidden, head, targets, 0.7)
    (got_slope,) = torch.autograd.grad((got * weights).sum(), hidden)
    torch.testing.assert_close(got.double(), wanted, rtol=0, atol=1e-5)
    torch.testing.assert_close(got_slope, slope, rtol=0, atol=1e-5)
    torch.testing.assert_close(entropy.double(), -(logp.exp() * logp).sum(-1), rtol=0, atol=1e-5)
