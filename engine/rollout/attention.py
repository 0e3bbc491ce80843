"""Attention of one step: one query for each decoding row, several for each chunk of a prompt.

The rows of a forward pass are the decoding sequences in the order of the arena, then the chunks one
after the other. Decoding rows are read in runs of adjacent arena rows of one length; a row in the
middle whose sequence is not decoding gets a query of zeros, and what comes of it is dropped.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from .kv_arena import KvArena, Run

Chunk = tuple[str, int, int]
"""Owner, tokens in the arena already, tokens to compute."""


@dataclass(frozen=True)
class DecodeSegment:
    """Adjacent rows of the arena and the queries for them."""

    run: Run
    start: int  # first query
    stop: int
    span: int  # tokens read of each row
    mask: Tensor  # (rows, 1, 1, span) of the model's dtype: 0 or -inf
    ready: Tensor | None  # int64: which rows have queries; None: all

    def attend(self, arena: KvArena, layer: int, q: Tensor) -> Tensor:
        """q: (N, heads, D) of all rows of the pass. Returns (stop - start, heads · D)."""
        keys, values = arena.read(layer, self.run.first, len(self.run.owners), self.run.length)
        queries = q[self.start : self.stop]
        if self.ready is not None:
            queries = queries.new_zeros(len(self.run.owners), *q.shape[1:]).index_copy_(
                0, self.ready, queries
            )
        out = F.scaled_dot_product_attention(
            queries.unflatten(1, (keys.shape[1], -1)),
            keys[:, :, : self.span],
            values[:, :, : self.span],
            attn_mask=self.mask,
        ).flatten(1)
        return out if self.ready is None else out[self.ready]


@dataclass(frozen=True)
class ChunkSegment:
    """Consecutive tokens of one prompt, after `past` that are in the arena already."""

    first: int  # of the row, as from KvArena.row_of
    length: int
    start: int  # first query
    stop: int
    past: int
    mask: Tensor | None  # (queries, past + queries) bool; None: nothing is past, causal

    def attend(self, arena: KvArena, layer: int, q: Tensor) -> Tensor:
        """q: (N, heads, D) of all rows of the pass. Returns (stop - start, heads · D)."""
        keys, values = arena.read(layer, self.first, 1, self.length)
        span = self.past + self.stop - self.start
        out = F.scaled_dot_product_attention(
            q[None, self.start : self.stop].transpose(1, 2),
            keys[:, :, :span],
            values[:, :, :span],
            attn_mask=self.mask,
            is_causal=self.mask is None,
            enable_gqa=True,
        )
        return out[0].transpose(0, 1).flatten(1)


class Attention:
    """The `Attend` of one forward pass."""

    def __init__(
        self,
        arena: KvArena,
        firsts: Tensor,
        lengths: Tensor,
        positions: Tensor,
        *segments: DecodeSegment | ChunkSegment,
    ) -> None:
        """firsts, lengths: int64 (N), of the arena's row of each row, as from KvArena.row_of;
        positions: of the token in it; segments: as `arrange` gave them."""
        self._arena, self._segments = arena, segments
        self._addresses = arena.addresses(firsts, lengths, positions)

    @classmethod
    def arrange(
        cls,
        arena: KvArena,
        positions: Mapping[str, int],
        chunks: Sequence[Chunk],
        dtype: torch.dtype,
        device: torch.device,
    ) -> tuple[list[str], tuple[DecodeSegment | ChunkSegment, ...]]:
        """positions: of each decoding owner, where the token to be computed stands.

        Returns the decoding owners in the order in which their rows are to come, before those of
        the chunks, and what the constructor takes.
        """
        order, decoding = decode_segments(arena.runs(), positions, dtype, device)
        segments: list[DecodeSegment | ChunkSegment] = [*decoding]
        start = len(order)
        for owner, past, count in chunks:
            segments.append(chunk_segment(arena.row_of(owner), start, count, past, device))
            start += count
        return order, tuple(segments)

    def __call__(self, layer: int, q: Tensor, kv: Tensor) -> Tensor:
        """q: (N, heads, D); kv: (N, 2 · kv heads, D). Returns (N, heads · D)."""
        self._arena.write(layer, self._addresses, kv)
        outs = [segment.attend(self._arena, layer, q) for segment in self._segments]
        return outs[0] if len(outs) == 1 else torch.cat(outs)


def decode_segments(
    runs: Sequence[Run], positions: Mapping[str, int], dtype: torch.dtype, device: torch.device
) -> tuple[list[str], list[DecodeSegment]]:
    """positions: by owner, where the token to be computed stands; absent: it is not decoding.

    Returns the decoding owners in the order of their rows, and the segments.
    """
    order: list[str] = []
    segments: list[DecodeSegment] = []
    for run in runs:
        ready = [row for row, owner in enumerate(run.owners) if owner in positions]
        if not ready:
            continue
        run = Run(run.first, run.length, run.owners[: ready[-1] + 1])
        ends = torch.tensor([positions.get(owner, 0) for owner in run.owners], device=device)
        span = int(ends.max()) + 1
        hidden = torch.arange(span, device=device) > ends[:, None]
        mask = torch.zeros(hidden.shape, dtype=dtype, device=device).masked_fill_(
            hidden, float("-inf")
        )
        has_all = len(ready) == len(run.owners)
        segments.append(
            DecodeSegment(
                run,
                len(order),
                len(order) + len(ready),
                span,
                mask[:, None, None],
                None if has_all else torch.tensor(ready, device=device),
            )
        )
        order += [run.owners[row] for row in ready]
    return order, segments


def chunk_segment(
    row: tuple[int, int], start: int, count: int, past: int, device: torch.device
) -> ChunkSegment:
    """row: as from KvArena.row_of; start: the chunk's first row in the pass."""
    mask = None
    if past:
        steps = torch.arange(count, device=device)[:, None] + past
        mask = torch.arange(past + count, device=device) <= steps
    return ChunkSegment(*row, start, start + count, past, mask)
