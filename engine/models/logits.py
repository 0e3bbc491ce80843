"""Logits whose rounding costs little.

bfloat16 keeps eight bits: a logit of 20 is rounded to an eighth. Softmax does not see what all
logits of a row have in common, so what the row's likely tokens have is taken off before the
product is rounded; they come out near 0, where numbers lie close together.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor


def shifted_logits(hidden: Tensor, head: Tensor, shifts: Tensor) -> Tensor:
    """hidden: (N, H); head: (V, H); shifts: (N), of each row a number near the logits that matter,
    rounded to the dtype of `hidden`. Returns (N, V) in that dtype, each row less its shift; in
    float32, where nothing is gained, as they are.
    """
    if hidden.dtype == torch.float32:
        return F.linear(hidden, head)
    return torch.addmm(-shifts.to(hidden.dtype)[:, None], hidden, head.t())


def target_logits(hidden: Tensor, head: Tensor, targets: Tensor) -> Tensor:
    """The logits of one token a row, float32 (N): shifts of rows whose likely tokens are known.

    targets: (N) int64.
    """
    return (hidden.float() * head[targets].float()).sum(-1)
