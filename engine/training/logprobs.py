"""Log-probs of chosen tokens without keeping logits.

A token's log-prob depends on its own hidden state only, so its derivative is one vector of size H,
which the forward pass makes chunk by chunk while it has the logits. Memory is (N, H) instead of
(N, V); the work is the same.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ..models.logits import shifted_logits, target_logits

TOKENS_AT_ONCE = 256  # bounds the logits to 256 · V float32 numbers


def token_logprobs(
    hidden: Tensor, head: Tensor, targets: Tensor, temperature: float
) -> tuple[Tensor, Tensor]:
    """hidden: (N, H); head: (V, H), frozen; targets: (N).

    Returns float32 log_softmax(hidden headᵀ / temperature) at the targets, differentiable in
    hidden, and the entropies of those distributions (without gradient), both (N).
    """
    return _TokenLogprobs.apply(hidden, head, targets, temperature)


class _TokenLogprobs(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, hidden: Tensor, head: Tensor, targets: Tensor, temperature: float
    ) -> tuple[Tensor, Tensor]:
        needs_gradient = ctx.needs_input_grad[0]
        logprobs, entropies, slopes = [], [], []
        chunks = zip(hidden.split(TOKENS_AT_ONCE), targets.split(TOKENS_AT_ONCE), strict=True)
        for h, target in chunks:
            logits = shifted_logits(h, head, target_logits(h, head, target))
            logp = torch.log_softmax(logits.float() / temperature, -1)
            logprobs.append(logp.gather(1, target[:, None])[:, 0])
            probs = logp.exp()
            entropies.append(-(probs * logp).sum(-1))
            if needs_gradient:
                mean = probs.to(head.dtype) @ head
                slopes.append((head[target] - mean) / temperature)
        if needs_gradient:
            ctx.save_for_backward(torch.cat(slopes))
        entropy = torch.cat(entropies)
        ctx.mark_non_differentiable(entropy)
        return torch.cat(logprobs), entropy

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None, None]:
        (slopes,) = ctx.saved_tensors
        return (gradients[0][:, None] * slopes).to(slopes.dtype), None, None, None
