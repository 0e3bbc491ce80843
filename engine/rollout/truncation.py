"""top-k, top-p and min-p: which tokens are never drawn.

The order is vLLM's: min-p, then top-k, then top-p over the mass of what those two keep.
(transformers applies min-p last, which differs only where min-p and top-p are used together.)
Tokens that are equally likely stay or go together, so the kept ones are all those at or above one
logit; a sort, as others use it, keeps some of the equals at the edge of top-p by their place.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ..types import SamplingParams

NUM_CANDIDATES = 1024  # looked at first; rows that keep more are sorted as a whole
NUMBERS_AT_ONCE = 1 << 21  # logits of a block: bounds the temporaries of a sort


class Truncation:
    """The truncated rows of a batch."""

    def __init__(self, requests: Sequence[SamplingParams], device: torch.device) -> None:
        """requests: B, with at least one truncated."""
        at = [row for row, params in enumerate(requests) if params.is_truncated]
        chosen = [requests[row] for row in at]
        self.rows = torch.tensor(at, device=device)  # (R)

        def column(values: list[float]) -> Tensor:
            return torch.tensor(values, device=device)[:, None]

        self._top_p = column([p.top_p if p.top_p < 1 else math.inf for p in chosen])
        self._log_min_p = column([math.log(p.min_p) if p.min_p else -math.inf for p in chosen])
        self._top_k = torch.tensor([p.top_k for p in chosen], device=device)[:, None]

    def apply(self, logits: Tensor, peaks: Tensor, heats: Tensor, masses: Tensor) -> Tensor:
        """A copy of the logits with -inf for every token that is dropped.

        logits: (R, V), of these rows; peaks: (R, 1) float32, the greatest logits; heats: (R, 1)
        temperatures; masses: (R, 1), sums of exp((logits - peak) / heat).
        """
        places = torch.arange(len(logits), device=logits.device)
        every, vocabulary = _Block(places, logits, peaks, heats, masses), logits.shape[1]
        parts = []
        for rows in places.split(max(1, NUMBERS_AT_ONCE // vocabulary)):
            block = every.select(rows)
            floors = self._floors(block, min(NUM_CANDIDATES, vocabulary))
            parts.append(block.logits.masked_fill(block.logits < floors, -math.inf))
        return torch.cat(parts)

    def _floors(self, block: _Block, num_candidates: int) -> Tensor:
        """(rows of the block, 1): the least logit that is kept."""
        values = block.logits.topk(num_candidates).values
        logp = (values.float() - block.peaks) / block.heats
        probs = logp.exp()
        top_k, log_min_p = self._top_k[block.rows], self._log_min_p[block.rows]
        last = values.gather(1, (top_k - 1).clamp(0, num_candidates - 1))
        is_kept = (logp >= log_min_p) & ((values >= last) | (top_k == 0))
        is_wide = is_kept[:, -1:]  # tokens beyond the candidates may be kept as well
        is_cut = (top_k > 0) | (log_min_p > -math.inf)
        kept = probs * is_kept
        total = kept.sum(-1, keepdim=True)
        has_more = num_candidates < block.logits.shape[1]
        if has_more:
            total = torch.where(is_wide, block.masses, total)
        is_kept &= kept.cumsum(-1) - kept < self._top_p[block.rows] * total
        floors = values.masked_fill(~is_kept, math.inf).amin(-1, keepdim=True)
        is_open = (is_kept[:, -1:] | (is_wide & is_cut))[:, 0]
        if has_more and bool(is_open.any()):
            floors[is_open] = self._floors(block.select(is_open), block.logits.shape[1])
        return floors


@dataclass(frozen=True)
class _Block:
    """Some of the truncated rows, and `Truncation.apply`'s arguments for them."""

    rows: Tensor  # their places among the truncated rows
    logits: Tensor
    peaks: Tensor
    heats: Tensor
    masses: Tensor

    def select(self, chosen: Tensor) -> _Block:
        """chosen: places within the block, or a mask."""
        columns = (self.rows, self.logits, self.peaks, self.heats, self.masses)
        return _Block(*(column[chosen] for column in columns))
