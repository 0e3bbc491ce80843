"""Trajectories to tensors, with the prompt computed once for several of its completions.

A row is a prompt and then some completions one after the other. Each completion sees the prompt
and itself, at the positions it had when it was generated, so the log-probs are those of separate
sequences, and the gradient too (tested). Micro-batches are bounded by tokens, padding included.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Sample:
    """One completion to train on."""

    prompt: tuple[int, ...]
    ids: tuple[int, ...]  # everything after the prompt
    logprobs: tuple[float, ...]  # sampled ones, by token of `ids`
    mask: bytes  # 1: trained on, by token of `ids`
    advantage: float
    weight: float  # of each of its trained tokens in the loss


@dataclass(frozen=True)
class Row:
    prompt: tuple[int, ...]
    samples: tuple[Sample, ...]

    @property
    def length(self) -> int:
        return len(self.prompt) + sum(len(sample.ids) for sample in self.samples)


@dataclass(frozen=True)
class MicroBatch:
    """One forward and backward pass: B rows padded to T, N trained tokens in them."""

    ids: Tensor  # (B, T) int64
    positions: Tensor  # (B, T) int64
    mask: Tensor  # (B, 1, T, T) bool, true: may be attended to
    sources: Tensor  # (N) int64: flat index into (B, T) of the token before each trained one
    targets: Tensor  # (N) int64: the trained tokens
    sampled: Tensor  # (N) float32: log-probs under which they were drawn
    advantages: Tensor  # (N) float32
    weights: Tensor  # (N) float32


def rows_of(samples: Sequence[Sample], max_tokens: int) -> list[Row]:
    """Samples with an equal prompt share rows of at most `max_tokens` (one sample at least)."""
    by_prompt: dict[tuple[int, ...], list[list[Sample]]] = {}
    for sample in samples:
        rows = by_prompt.setdefault(sample.prompt, [[]])
        length = len(sample.prompt) + sum(len(s.ids) for s in rows[-1]) + len(sample.ids)
        if rows[-1] and length > max_tokens:
            rows.append([])
        rows[-1].append(sample)
    return [Row(prompt, tuple(row)) for prompt, rows in by_prompt.items() for row in rows]


def micro_batches(rows: Sequence[Row], max_tokens: int) -> list[list[Row]]:
    """Rows of similar length together, each batch at most `max_tokens` (one row at least)."""
    batches: list[list[Row]] = []
    for row in sorted(rows, key=lambda row: row.length):
        if batches and row.length * (len(batches[-1]) + 1) <= max_tokens:
            batches[-1].append(row)
        else:
            batches.append([row])
    return batches


def to_tensors(rows: Sequence[Row], device: torch.device) -> MicroBatch:
    """One micro-batch on the device."""
    width = max(row.length for row in rows)
    ids, positions, segments, trained = [], [], [], []
    for index, row in enumerate(rows):
        row_ids, row_positions, row_segments = _flatten(row)
        padding = width - row.length
        ids.append(row_ids + [0] * padding)
        positions.append(row_positions + [0] * padding)
        segments.append(row_segments + [-1] * padding)
        trained += _trained_tokens(row, index * width)
    sources, targets, *floats = zip(*trained, strict=True)
    segment = torch.tensor(segments, device=device)
    sampled, advantages, weights = (torch.tensor(values, device=device) for values in floats)
    return MicroBatch(
        torch.tensor(ids, device=device),
        torch.tensor(positions, device=device),
        attention_mask(segment),
        torch.tensor(sources, device=device),
        torch.tensor(targets, device=device),
        sampled,
        advantages,
        weights,
    )


def attention_mask(segments: Tensor) -> Tensor:
    """segments: (B, T): 0 prompt, 1 … completions, -1 padding. Returns (B, 1, T, T) bool.

    A token sees what stands before it in the prompt and in its own segment (so padding sees
    padding, and no row of the softmax is empty).
    """
    order = torch.arange(segments.shape[1], device=segments.device)
    earlier = order[:, None] >= order
    seen, seeing = segments[:, None, :], segments[:, :, None]
    is_prompt = (seen == 0) & (seeing >= 0)
    return (earlier & (is_prompt | (seen == seeing)))[:, None]


def _flatten(row: Row) -> tuple[list[int], list[int], list[int]]:
    """ids, positions and segments of a row's tokens."""
    start = len(row.prompt)
    ids, positions, segments = list(row.prompt), list(range(start)), [0] * start
    for number, sample in enumerate(row.samples, start=1):
        ids += sample.ids
        positions += range(start, start + len(sample.ids))
        segments += [number] * len(sample.ids)
    return ids, positions, segments


def _trained_tokens(row: Row, offset: int) -> list[tuple[int, int, float, float, float]]:
    """(source, target, sampled log-prob, advantage, weight) of every token with mask 1."""
    found = []
    start = len(row.prompt)
    for sample in row.samples:
        for i, (token, logprob, is_trained) in enumerate(
            zip(sample.ids, sample.logprobs, sample.mask, strict=True)
        ):
            if is_trained:
                before = start + i - 1 if i else len(row.prompt) - 1
                found.append((offset + before, token, logprob, sample.advantage, sample.weight))
        start += len(sample.ids)
    return found
