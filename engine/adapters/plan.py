"""How the rows of one batch meet the adapters in the slots, and the products that follow from it.

Rows are gathered into runs: adjacent slots of one shelf, each with the same number of rows, padded
to that of the longest; a run is cut where padding would more than double the work. Rows that lie in
the order of the slots, equally many for each, need no gathering: they are views.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import torch
from torch import Tensor

from .shelf import Shelf

WIDE_ROWS = 32  # a segment of so many rows is a run of its own: a view, and no padding for others

Weights = tuple[Tensor, tuple[tuple[Tensor, int, int], ...]]
"""A (S, pieces · R, in) of a fused projection; B (S, R, out) and first and last column a piece."""


@dataclass(frozen=True)
class Run:
    """Slots start … stop-1 of a shelf, each with `width` rows."""

    shelf: Shelf
    start: int
    stop: int
    width: int  # G
    first: int = 0  # rows first … first + S · G of the batch, if there is no gather
    gather: Tensor | None = None  # (S · G) int64: rows of the batch by slot; padded with any
    rows: Tensor | None = None  # (n) int64: the rows that the run changes; None: all, in order
    picks: Tensor | None = None  # (n) int64: where each of them stands in `gather`
    _weights: dict[tuple[int, str], Weights | None] = field(default_factory=dict)

    def apply(self, layer: int, fused: str, x: Tensor, y: Tensor) -> Tensor:
        """y with this run's products added; y may have been changed in place."""
        weights = self._weights_of(layer, fused)
        if weights is None:
            return y
        if self.gather is None or self.picks is None:
            rows = slice(self.first, self.first + (self.stop - self.start) * self.width)
            self._add(weights, x[rows], y[rows])
            return y
        gathered = y.index_select(0, self.gather)
        self._add(weights, x.index_select(0, self.gather), gathered)
        changed = gathered.index_select(0, self.picks)
        return changed if self.rows is None else y.index_copy_(0, self.rows, changed)

    def _add(self, weights: Weights, x: Tensor, y: Tensor) -> None:
        """x: (S · G, in), y: (S · G, out), which is changed in place."""
        down, ups = weights
        size = (self.stop - self.start, self.width, -1)
        x = x.view(size)
        # (S, G, pieces · R); the larger of A and x is read as it lies
        is_wide = self.width >= WIDE_ROWS
        low = torch.bmm(x, down.mT) if is_wide else torch.bmm(down, x.mT).mT
        y = y.view(size)
        rank = self.shelf.layout.key.rank
        for index, (up, start, stop) in enumerate(ups):
            part = low[..., index * rank : (index + 1) * rank]
            y[..., start:stop].baddbmm_(part, up)

    def _weights_of(self, layer: int, fused: str) -> Weights | None:
        """Views, made once a run; None if its adapters have nothing there."""
        key = (layer, fused)
        if key not in self._weights:
            self._weights[key] = self._view(key)
        return self._weights[key]

    def _view(self, key: tuple[int, str]) -> Weights | None:
        projection = self.shelf.layout.projections.get(key)
        if projection is None:
            return None
        rank, pieces = self.shelf.layout.key.rank, projection.pieces

        def matrices(offset: int, rows: int, columns: int) -> Tensor:
            return self.shelf.matrices(self.start, self.stop, offset, rows, columns)

        down = matrices(projection.down, len(pieces) * rank, projection.num_in)
        ups = tuple((matrices(p.up, rank, p.stop - p.start), p.start, p.stop) for p in pieces)
        return down, ups


@dataclass(frozen=True)
class LoraPlan:
    """How one batch composition meets the stack. Valid while `AdapterStack.revision` stays."""

    runs: tuple[Run, ...] = ()

    def apply(self, layer: int, fused: str, x: Tensor, y: Tensor) -> Tensor:
        """y + each row's own scale · B A x.

        x: (N, in), y: (N, out) of the fused projection, both contiguous. Use what is returned: y
        may have been changed in place, or not.
        """
        for run in self.runs:
            y = run.apply(layer, fused, x, y)
        return y


@dataclass
class Segment:
    """Rows start … stop-1 of the batch, which use one slot."""

    slot: int
    start: int
    stop: int


def runs_of(
    shelf: Shelf, segments: Sequence[Segment], num_rows: int, device: torch.device
) -> list[Run]:
    """Runs that cover the segments of one shelf. num_rows: of the whole batch (N)."""
    wide = [s for s in segments if s.stop - s.start >= WIDE_ROWS]
    by_slot: dict[int, list[Segment]] = {}
    for segment in segments:
        if segment.stop - segment.start < WIDE_ROWS:
            by_slot.setdefault(segment.slot, []).append(segment)
    counts = [sum(s.stop - s.start for s in by_slot.get(i, [])) for i in range(len(shelf.names))]
    runs = [Run(shelf, s.slot, s.slot + 1, s.stop - s.start, first=s.start) for s in wide]
    for start, stop in cut_runs(counts):
        inside = [s for slot in range(start, stop) for s in by_slot.get(slot, [])]
        runs.append(_run(shelf, start, stop, inside, counts, num_rows, device))
    return runs


def _run(
    shelf: Shelf,
    start: int,
    stop: int,
    segments: list[Segment],
    counts: list[int],
    num_rows: int,
    device: torch.device,
) -> Run:
    """segments: in the order of their slots."""
    width = max(counts[start:stop])
    is_even = all(count == width for count in counts[start:stop])
    is_adjacent = all(a.stop == b.start for a, b in pairwise(segments))
    if is_even and is_adjacent:
        return Run(shelf, start, stop, width, first=segments[0].start)
    rows = torch.cat([torch.arange(s.start, s.stop) for s in segments])
    slots = torch.arange(stop - start).repeat_interleave(torch.tensor(counts[start:stop]))
    firsts = torch.tensor([0, *counts[start:stop]]).cumsum(0)[:-1]
    picks = slots * width + torch.arange(len(rows)) - firsts[slots]
    gather = torch.full(((stop - start) * width,), segments[0].start)
    gather[picks] = rows
    if len(rows) == num_rows:
        picks = picks[rows.argsort()]
        return Run(shelf, start, stop, width, 0, gather.to(device), None, picks.to(device))
    return Run(shelf, start, stop, width, 0, gather.to(device), rows.to(device), picks.to(device))


def cut_runs(counts: Sequence[int]) -> list[tuple[int, int]]:
    """Cut slots into runs (start, stop) whose padded size is at most twice their rows.

    counts: rows of each slot; slots without rows at a run's ends are left out.
    """
    runs: list[tuple[int, int]] = []
    total = widest = 0
    for slot, count in enumerate(counts):
        if not count:
            continue
        start = runs[-1][0] if runs else slot
        if runs and max(widest, count) * (slot + 1 - start) <= 2 * (total + count):
            total, widest = total + count, max(widest, count)
            runs[-1] = (start, slot + 1)
        else:
            total = widest = count
            runs.append((slot, slot + 1))
    return runs
