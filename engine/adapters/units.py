"""How the rows of one batch meet adapters that each lie by themselves, for the native kernels.

Rows of the same adapter are gathered into units of a few rows, in any order: nothing is copied or
padded. Rows without an adapter are in units, too, because the kernels take every row somewhere.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from torch import Tensor

from ..native.structs import Target, Units, address
from .layout import SlotLayout

UNIT_ROWS = 4  # ROWS in kernels.c


@dataclass(frozen=True)
class Placed:
    """An adapter in use: where its matrices are, and in which order."""

    weights: Tensor  # (layout.num_elements)
    layout: SlotLayout
    line: int  # of the table of offsets


@dataclass(frozen=True)
class UnitPlan:
    """One batch composition. Holds what the kernels read, also if an adapter is removed."""

    units: Units
    targets: Mapping[tuple[int, str], Target]
    held: tuple[object, ...]

    @property
    def address(self) -> int:
        return ctypes.addressof(self.units)

    def target(self, layer: int, fused: str) -> int:
        """Address of the description of one fused projection."""
        return ctypes.addressof(self.targets[layer, fused])


def unit_plan(
    adapters: Sequence[Placed | None],
    counts: Sequence[int] | None,
    targets: Mapping[tuple[int, str], Target],
) -> UnitPlan:
    """adapters[i] is for counts[i] consecutive rows; None: one each."""
    by_adapter: dict[int, tuple[Placed | None, list[int]]] = {}
    row = 0
    for index, placed in enumerate(adapters):
        count = 1 if counts is None else counts[index]
        by_adapter.setdefault(id(placed), (placed, []))[1].extend(range(row, row + count))
        row += count
    rows: list[int] = []
    starts = [0]
    ranks: list[int] = []
    weights: list[int] = []
    lines: list[int] = []
    for placed, own in by_adapter.values():
        rows += own
        for start in range(0, len(own), UNIT_ROWS):
            starts.append(starts[-1] + min(UNIT_ROWS, len(own) - start))
            ranks.append(placed.layout.key.rank if placed else 0)
            weights.append(address(placed.weights) if placed else 0)
            lines.append(placed.line if placed else 0)
    arrays = (
        np.array(rows, np.int32),
        np.array(starts, np.int32),
        np.array(ranks, np.int32),
        np.array(weights, np.int64),
        np.array(lines, np.int32),
    )
    units = Units(len(ranks), *(address(array) for array in arrays))
    return UnitPlan(units, targets, (arrays, tuple(by_adapter.values())))
