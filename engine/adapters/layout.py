"""Which matrices an adapter has, and how they follow each other in one flat row of numbers.

Adapters of the same rank class that adapt the same projections share a layout, and so can stand in
the slots of one shelf. A is (pieces · R, in), PEFT's own order, and B is (R, out) of each piece,
scale included: of the orders that a batched product takes, these were the fastest with few rows an
adapter. Knows nothing of where slots are, or who uses them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from ..native.pages import zeros_in_huge_pages
from .files import Adapter, lora_names

FUSED = {
    "qkv": ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
    "o": ("self_attn.o_proj",),
    "gate_up": ("mlp.gate_proj", "mlp.up_proj"),
    "down": ("mlp.down_proj",),
}
ALIGNMENT_BYTES = 64  # of each matrix: a cache line

Shapes = Mapping[str, tuple[int, int]]
"""(out, in) of every linear layer of the base model, by PEFT's module name."""


@dataclass(frozen=True)
class LayoutKey:
    """What adapters of one layout have in common."""

    rank: int  # a rank class
    fused: tuple[str, ...]  # the keys of FUSED that have weights, in that order


@dataclass(frozen=True)
class Piece:
    """One module's part of a fused projection."""

    module: str
    up: int  # offset of B (R, out)
    start: int  # columns of the fused output: start … stop-1
    stop: int


@dataclass(frozen=True)
class Projection:
    """The weights of one fused projection of one layer; offsets count numbers, not bytes."""

    down: int  # offset of A (pieces · R, in)
    num_in: int
    pieces: tuple[Piece, ...]


class SlotLayout:
    """Where each matrix starts in a packed adapter of `num_elements` numbers."""

    def __init__(
        self,
        key: LayoutKey,
        shapes: Shapes,
        num_layers: int,
        dtype: torch.dtype,
        in_pairs: bool = False,
    ) -> None:
        """in_pairs: B is (R / 2, out, 2), as the native kernels read it."""
        self.key, self.dtype, self.in_pairs = key, dtype, in_pairs
        self._align = ALIGNMENT_BYTES // dtype.itemsize
        self._end = 0
        self.projections = {
            (layer, fused): self._place(layer, fused, shapes)
            for layer in range(num_layers)
            for fused in key.fused
        }
        self.num_elements = self._end
        self.matrices = tuple(self._matrices())

    @property
    def num_bytes(self) -> int:
        """Of one adapter."""
        return self.num_elements * self.dtype.itemsize

    def pack(self, adapter: Adapter) -> Tensor:
        """The adapter's matrices, one after the other: (num_elements). Any thread may call it.

        What has no weights (a module, a layer, the rank up to the class's) is zero, which changes
        nothing in the products.
        """
        flat = zeros_in_huge_pages(self.num_elements, self.dtype)
        rank = self.key.rank
        for projection in self.projections.values():
            num_in, pieces = projection.num_in, projection.pieces
            down = _matrix(flat, projection.down, len(pieces) * rank, num_in)
            for index, piece in enumerate(pieces):
                a, b = (adapter.tensors.get(name) for name in lora_names(piece.module))
                if a is None or b is None:
                    continue
                down[index * rank : index * rank + adapter.rank] = torch.from_numpy(a)
                self._put_up(flat, piece, torch.from_numpy(b * np.float32(adapter.scale)).T)
        return flat

    def _put_up(self, flat: Tensor, piece: Piece, values: Tensor) -> None:
        """values: (rank of the adapter, out)."""
        rank, width = self.key.rank, piece.stop - piece.start
        up = _matrix(flat, piece.up, rank, width)
        if self.in_pairs:
            whole = F.pad(values, (0, 0, 0, rank - len(values)))
            up.view(rank // 2, width, 2)[:] = whole.view(rank // 2, 2, width).transpose(1, 2)
        else:
            up[: len(values)] = values

    def _place(self, layer: int, fused: str, shapes: Shapes) -> Projection:
        modules = [f"model.layers.{layer}.{name}" for name in FUSED[fused]]
        num_in = shapes[modules[0]][1]
        down = self._take(len(modules) * self.key.rank * num_in)
        pieces: list[Piece] = []
        column = 0
        for module in modules:
            width = shapes[module][0]
            pieces.append(Piece(module, self._take(self.key.rank * width), column, column + width))
            column += width
        return Projection(down, num_in, tuple(pieces))

    def _matrices(self) -> Iterator[tuple[int, int]]:
        """(offset, size) of each, in order."""
        for projection in self.projections.values():
            rows = len(projection.pieces) * self.key.rank
            yield projection.down, rows * projection.num_in
            for piece in projection.pieces:
                yield piece.up, self.key.rank * (piece.stop - piece.start)

    def _take(self, size: int) -> int:
        start = self._end
        self._end = -(-(start + size) // self._align) * self._align
        return start


@dataclass(frozen=True)
class PackedAdapter:
    """An adapter in the form in which the engine computes with it; made by `pack_adapter`."""

    layout: SlotLayout
    weights: Tensor  # (layout.num_elements), on the CPU

    @property
    def num_bytes(self) -> int:
        """That it takes in the stack."""
        return self.layout.num_bytes


def pack_adapter(
    adapter: Adapter,
    layouts: dict[LayoutKey, SlotLayout],
    shapes: Shapes,
    num_layers: int,
    dtype: torch.dtype,
    in_pairs: bool = False,
) -> PackedAdapter:
    """Check and convert. layouts: those made so far, to which a new one is added; in_pairs: as
    SlotLayout takes it.

    Raises: ValueError if a module is not the base model's, or its shape does not fit.
    """
    for module in adapter.modules:
        a, b = (adapter.tensors[n] for n in lora_names(module))
        if shapes.get(module) != (b.shape[0], a.shape[1]):
            raise ValueError(f"{module} of shape {(b.shape[0], a.shape[1])} does not fit the base")
    key = layout_key(adapter)
    layout = layouts.get(key)
    if layout is None:
        layout = layouts.setdefault(key, SlotLayout(key, shapes, num_layers, dtype, in_pairs))
    return PackedAdapter(layout, layout.pack(adapter))


def layout_key(adapter: Adapter) -> LayoutKey:
    """The layout that an adapter belongs to."""
    suffixes = {".".join(module.split(".")[-2:]) for module in adapter.modules}
    fused = tuple(name for name, modules in FUSED.items() if suffixes & set(modules))
    return LayoutKey(rank_class(adapter.rank), fused)


def rank_class(rank: int) -> int:
    """Ranks are rounded up: to eights, beyond 32 to sixteens, beyond 64 to thirty-twos.

    Fewer classes are fewer products a step; closer ones waste less memory (a rank that is itself a
    class wastes none).
    """
    step = 8 if rank <= 32 else 16 if rank <= 64 else 32
    return -(-rank // step) * step


def _matrix(flat: Tensor, offset: int, rows: int, columns: int) -> Tensor:
    return flat[offset : offset + rows * columns].view(rows, columns)
