"""Drawing tokens, exactly, at little more than the cost of a softmax.

The Gumbel-max trick: the item with the greatest log-prob plus Gumbel noise is a draw from the
distribution. It is used twice: among chunks of the vocabulary by the mass of each, then among the
tokens of the chosen chunk. That is the same distribution, and noise is needed for V / 256 + 256
numbers a row and not for V. What a row draws depends on its logits, parameters, seed and index
alone; a small change of the logits changes the token only where two scores lie that near
(`score_gaps`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..native.build import native
from ..native.structs import address
from ..types import SamplingParams
from .noise import draw_keys, gumbel_noise, seed_tensor
from .truncation import Truncation

CHUNK = 256  # tokens; near the square root of usual vocabularies
CACHE_NUMBERS = 1 << 18  # float32 of a block on the CPU: 1 MiB stays in a core's cache
DEVICE_NUMBERS = 1 << 26  # float32 of a block elsewhere: 256 MiB, few kernels
LEAST_LOGP = -80.0  # below the likeliest token's; no noise lifts a chunk of these to the top, and
# exponentials of smaller numbers are denormal, which is slow


class SamplingBatch:
    """The sampling parameters and seeds of a batch. Made anew only when its rows change."""

    def __init__(
        self, requests: Sequence[SamplingParams], seeds: Sequence[int], device: torch.device
    ) -> None:
        """B of each."""
        heats = [p.temperature for p in requests]
        self._heats = torch.tensor(heats, dtype=torch.float32, device=device)[:, None]
        self._seeds = seed_tensor(seeds)
        is_truncated = any(p.is_truncated for p in requests)
        self._truncation = Truncation(requests, device) if is_truncated else None

    def draw(self, logits: Tensor, indices: Sequence[int]) -> tuple[list[int], list[float]]:
        """One token for each row, and its log-prob in the distribution it was drawn from.

        logits: (B, V), any float dtype; indices: tokens each request has drawn so far. Log-probs
        are float32: log_softmax(logits / temperature), over the kept tokens if truncated. Where
        they are not finite, neither were the logits, and the token means nothing.
        """
        scores = self._scores(logits, indices)
        picks = scores.tokens.argmax(-1, keepdim=True)
        tokens, logprobs = scores.ids.gather(1, picks), scores.logprobs.gather(1, picks)
        return tokens[:, 0].tolist(), logprobs[:, 0].tolist()

    def score_gaps(self, logits: Tensor, indices: Sequence[int]) -> list[float]:
        """How near each draw was to another one: the lesser of both levels' gaps between the two
        best scores. A change of all logits by less than half of it gives the same token, unless a
        token crosses the edge of a truncation.
        """
        scores = self._scores(logits, indices)
        gaps = [_gap_of_two_best(level) for level in (scores.chunks, scores.tokens)]
        return torch.minimum(*gaps).tolist()

    def _scores(self, logits: Tensor, indices: Sequence[int]) -> _Scores:
        masses, peaks = _chunk_masses(logits, self._heats)
        if self._truncation is not None:
            rows = self._truncation.rows
            heats, totals = self._heats[rows], masses[rows].sum(-1, keepdim=True)
            kept = self._truncation.apply(logits[rows], peaks[rows], heats, totals)
            masses[rows] = _chunk_masses(kept, heats)[0]
            logits = logits.index_copy(0, rows, kept)
        keys = draw_keys(self._seeds, torch.tensor(indices, dtype=torch.int64)).to(logits.device)
        numbers = torch.arange(masses.shape[1], dtype=torch.int32, device=logits.device)
        chunks = masses.log() + gumbel_noise(numbers, keys[:, 0])
        first = chunks.argmax(-1, keepdim=True) * CHUNK
        ids = first + torch.arange(CHUNK, device=logits.device)
        vocabulary = logits.shape[1]
        logp = logits.gather(1, ids.clamp(max=vocabulary - 1)).float()
        logp = logp.sub_(peaks).div_(self._heats).masked_fill_(ids >= vocabulary, -math.inf)
        tokens = logp + gumbel_noise(ids.int(), keys[:, 1])
        return _Scores(chunks, ids, logp - _log_totals(masses), tokens)


@dataclass
class _Scores:
    """Log-masses plus noise, at both levels."""

    chunks: Tensor  # (B, K)
    ids: Tensor  # (B, CHUNK) int64: the tokens of each row's best chunk
    logprobs: Tensor  # (B, CHUNK): theirs
    tokens: Tensor  # (B, CHUNK): their scores


def sample(
    logits: Tensor,
    requests: Sequence[SamplingParams],
    seeds: Sequence[int],
    indices: Sequence[int],
) -> tuple[list[int], list[float]]:
    """A batch drawn from once; see SamplingBatch.draw."""
    return SamplingBatch(requests, seeds, logits.device).draw(logits, indices)


def prompt_logprobs(logits: Tensor, targets: Tensor, temperature: float) -> Tensor:
    """(N) float32: log_softmax(logits / temperature) of the targets.

    logits: (N, V), any float dtype; targets: (N) int64. No (N, V) float32 is made.
    """
    heats = torch.full((len(logits), 1), float(temperature), device=logits.device)
    masses, peaks = _chunk_masses(logits, heats)
    logp = (logits.gather(1, targets[:, None]).float() - peaks) / heats
    return (logp - _log_totals(masses))[:, 0]


def _chunk_masses(logits: Tensor, heats: Tensor) -> tuple[Tensor, Tensor]:
    """The mass of each chunk relative to the row's likeliest token, block by block.

    logits: (B, V); heats: (B, 1). Returns (B, K) float32, sums of exp((logits - peak) / heat), and
    the peaks (B, 1) float32, the rows' greatest logits.
    """
    kernels = native().kernels if _suits_kernel(logits) else None
    if kernels is not None:
        return _native_masses(kernels, logits, heats)
    count, vocabulary = logits.shape
    numbers = CACHE_NUMBERS if logits.device.type == "cpu" else DEVICE_NUMBERS
    num_chunks, num_rows = -(-vocabulary // CHUNK), max(1, min(count, numbers // vocabulary))
    masses = torch.empty(count, num_chunks, device=logits.device)
    peaks = torch.empty(count, 1, device=logits.device)
    padded = torch.zeros(num_rows, num_chunks * CHUNK, device=logits.device)
    for start in range(0, count, num_rows):
        rows = slice(start, min(start + num_rows, count))
        block = padded[: rows.stop - start]
        values = block[:, :vocabulary].copy_(logits[rows])
        torch.amax(values, -1, keepdim=True, out=peaks[rows])
        values.sub_(peaks[rows]).div_(heats[rows]).clamp_(min=LEAST_LOGP).exp_()
        torch.sum(block.view(-1, num_chunks, CHUNK), -1, out=masses[rows])
    return masses, peaks


def _suits_kernel(logits: Tensor) -> bool:
    return logits.device.type == "cpu" and logits.dtype == torch.bfloat16


def _native_masses(kernels: Any, logits: Tensor, heats: Tensor) -> tuple[Tensor, Tensor]:
    """As `_chunk_masses`, in one pass over each row."""
    count, vocabulary = logits.shape
    logits, heats = logits.contiguous(), heats.contiguous()
    masses, peaks = torch.empty(count, -(-vocabulary // CHUNK)), torch.empty(count, 1)
    arrays = [address(array) for array in (logits, heats, masses, peaks)]
    kernels.chunk_masses(count, vocabulary, CHUNK, *arrays)
    return masses, peaks


def _log_totals(masses: Tensor) -> Tensor:
    """(B, 1)"""
    return masses.sum(-1, keepdim=True).log_()


def _gap_of_two_best(scores: Tensor) -> Tensor:
    """(B); infinite where there is no second one."""
    if scores.shape[1] < 2:
        return torch.full_like(scores[:, 0], math.inf)
    best = scores.topk(2).values
    return best[:, 0] - best[:, 1]
