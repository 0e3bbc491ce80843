"""What rounding costs with and without a shift, against float64."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from engine.models.logits import shifted_logits, target_logits


def head_and_hidden(dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Logits of about 20 for the likeliest of 500 tokens, as of a language model."""
    torch.manual_seed(0)
    head, hidden = torch.randn(500, 64), torch.randn(40, 64)
    return (head + 0.3).to(dtype), (hidden + 0.5).to(dtype)


def exact(hidden: Tensor, head: Tensor) -> Tensor:
    return (hidden.double() @ head.double().T).log_softmax(-1)


def test_a_shift_leaves_likely_tokens_nearly_unrounded() -> None:
    head, hidden = head_and_hidden(torch.bfloat16)
    true = exact(hidden, head)
    likely = true > -4
    peaks = F.linear(hidden, head).float().amax(-1)
    assert peaks.abs().mean() > 10

    def error(logits: Tensor) -> float:
        return float((logits.double().log_softmax(-1) - true)[likely].square().mean().sqrt())

    plain, shifted = F.linear(hidden, head), shifted_logits(hidden, head, peaks)
    assert shifted.dtype == torch.bfloat16
    assert error(shifted) < error(plain) / 4


def test_in_float32_logits_stay_as_they_are() -> None:
    head, hidden = head_and_hidden(torch.float32)
    shifts = torch.full((40,), 17.0)
    assert torch.equal(shifted_logits(hidden, head, shifts), F.linear(hidden, head))


def test_the_logit_of_a_target_is_that_of_the_product() -> None:
    head, hidden = head_and_hidden(torch.bfloat16)
    targets = torch.arange(40) * 7
    expected = (hidden.double() @ head.double().T).gather(1, targets[:, None])[:, 0]
    found = target_logits(hidden, head, targets)
    torch.testing.assert_close(found, expected.float(), rtol=1e-5, atol=1e-4)
