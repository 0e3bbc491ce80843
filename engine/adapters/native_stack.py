"""Many adapters at once where the native kernels read them: each by itself, as it was packed.

Takes the place of AdapterStack, with the same methods, on a CPU in bfloat16. Adding an adapter
copies nothing, and removing one moves none.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from ..native.structs import MAX_PIECES, Target, address
from .files import Adapter
from .layout import FUSED, LayoutKey, PackedAdapter, Shapes, SlotLayout, pack_adapter
from .stack import AdapterStack
from .units import Placed, UnitPlan, unit_plan

MAX_RANK = 1024  # low rows lie on a thread's stack


class NativeStack:
    """The adapters that some sequence in the engine may use, by name."""

    def __init__(self, shapes: Shapes, num_layers: int, dtype: torch.dtype) -> None:
        """shapes: (out, in) of every linear layer, by PEFT's module name."""
        self._shapes, self._num_layers, self._dtype = shapes, num_layers, dtype
        self._layouts: dict[LayoutKey, SlotLayout] = {}
        self._lines: dict[LayoutKey, int] = {}
        self._offsets = np.zeros((0, num_layers, len(FUSED), 1 + MAX_PIECES), np.int64)
        self._targets = self._make_targets()
        self._placed: dict[str, Placed] = {}
        self.revision = 0  # a plan made at another one is right, but holds what was removed

    @property
    def names(self) -> list[str]:
        return sorted(self._placed)

    @property
    def num_bytes(self) -> int:
        """Memory of all adapters in it."""
        return sum(placed.layout.num_bytes for placed in list(self._placed.values()))

    def pack(self, adapter: Adapter) -> PackedAdapter:
        """As AdapterStack's. Any thread may call it. Raises: ValueError, also if the rank is more
        than the kernels have room for."""
        if adapter.rank > MAX_RANK:
            raise ValueError(f"rank {adapter.rank} is more than {MAX_RANK}")
        return pack_adapter(
            adapter, self._layouts, self._shapes, self._num_layers, self._dtype, in_pairs=True
        )

    def prepare(self, packed: PackedAdapter) -> None:
        """Nothing: it stays where it is."""

    def enlarge_pages(self) -> bool:
        """They are as large as they get."""
        return False

    def install(self, name: str, packed: PackedAdapter) -> None:
        assert name not in self._placed
        line = self._line(packed.layout)
        self._placed[name] = Placed(packed.weights, packed.layout, line)

    def add(self, name: str, adapter: Adapter) -> None:
        """Pack and install. Raises: ValueError as `pack` does."""
        self.install(name, self.pack(adapter))

    def remove(self, name: str) -> None:
        del self._placed[name]
        self.revision += 1

    def plan(self, names: Sequence[str | None], counts: Sequence[int] | None = None) -> UnitPlan:
        """counts[i] rows for names[i]; counts None: one each; a name None: the base model."""
        placed = [None if name is None else self._placed[name] for name in names]
        return unit_plan(placed, counts, self._targets)

    def _line(self, layout: SlotLayout) -> int:
        """Of the table of offsets; plans that exist keep the table they were made with."""
        if layout.key not in self._lines:
            line = np.full((1, *self._offsets.shape[1:]), -1, np.int64)
            for (layer, fused), projection in layout.projections.items():
                numbers = [projection.down, *(piece.up for piece in projection.pieces)]
                line[0, layer, list(FUSED).index(fused), : len(numbers)] = numbers
            self._offsets = np.concatenate((self._offsets, line))
            self._lines[layout.key] = len(self._offsets) - 1
            self._targets = self._make_targets()
        return self._lines[layout.key]

    def _make_targets(self) -> dict[tuple[int, str], Target]:
        stride = self._offsets[0].size if len(self._offsets) else 0
        targets = {}
        for layer in range(self._num_layers):
            for index, (fused, modules) in enumerate(FUSED.items()):
                shapes = [self._shapes[f"model.layers.{layer}.{module}"] for module in modules]
                columns = np.cumsum([0, *(out for out, _ in shapes)]).tolist()
                target = Target(shapes[0][1], columns[-1], len(modules))
                target.columns[: len(columns)] = columns
                target.offsets = address(self._offsets) + 8 * (
                    (layer * len(FUSED) + index) * (1 + MAX_PIECES)
                )
                target.offsets_stride = stride
                target.table = self._offsets  # kept as long as the target
                targets[layer, fused] = target
        return targets


Stack = AdapterStack | NativeStack
"""Either: they have the same methods."""
