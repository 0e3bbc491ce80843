"""Many adapters at once: in slots by rank class, applied to a mixed batch by batched products.

Adapters of one layout (rank class and adapted projections) fill shelves of slots; a batch's rows
are gathered into runs of adjacent slots. Knows nothing of files, digests or reference counts.
Invariant: a name maps to one slot of one shelf; slots in use are dense, because removing moves the
last one into the hole, and an empty shelf is freed.
"""

from __future__ import annotations

from collections.abc import Sequence
from threading import Lock

import torch

from .files import Adapter
from .layout import FUSED, LayoutKey, PackedAdapter, Shapes, SlotLayout, pack_adapter
from .plan import LoraPlan, Segment, runs_of
from .shelf import Shelf

__all__ = ["FUSED", "AdapterStack", "LoraPlan", "PackedAdapter"]

PREPARED_SLOTS = 2  # the next, and the one after if another waits to be installed


class AdapterStack:
    """The adapters that some sequence in the engine may use, by name."""

    def __init__(
        self, shapes: Shapes, num_layers: int, dtype: torch.dtype, device: torch.device
    ) -> None:
        """shapes: (out, in) of every linear layer, by PEFT's module name."""
        self._shapes, self._num_layers = shapes, num_layers
        self._dtype, self._device = dtype, device
        self._layouts: dict[LayoutKey, SlotLayout] = {}
        self._shelves: dict[LayoutKey, list[Shelf]] = {}
        self._lock = Lock()  # of _shelves: `prepare` is for another thread
        self._places: dict[str, tuple[Shelf, int]] = {}  # shelf and slot by name
        self.revision = 0  # plans and orders made at another one are no longer valid

    @property
    def names(self) -> list[str]:
        return sorted(self._places)

    @property
    def num_bytes(self) -> int:
        """Memory of all adapters in it."""
        return sum(
            len(shelf.names) * shelf.layout.num_bytes
            for shelves in list(self._shelves.values())
            for shelf in list(shelves)
        )

    def pack(self, adapter: Adapter) -> PackedAdapter:
        """Check and convert; touches no slot, so that any thread may do it at any time.

        Raises: ValueError if a module is not the base model's, or its shape does not fit.
        """
        return pack_adapter(adapter, self._layouts, self._shapes, self._num_layers, self._dtype)

    def prepare(self, packed: PackedAdapter) -> None:
        """Have memory ready for where it will go. Any thread may call it; nothing depends on it."""
        shelf = self._open_shelf(packed.layout)
        for slot in range(len(shelf.names), len(shelf.names) + PREPARED_SLOTS):
            shelf.take_pages(slot)

    def enlarge_pages(self) -> bool:
        """One more huge page under a full shelf; False if there is none to make. Takes about a
        millisecond and waits for nobody: for another thread, beside the steps."""
        with self._lock:
            shelves = [s for some in self._shelves.values() for s in some if not s.has_room]
        return any(shelf.enlarge_pages() for shelf in shelves)

    @torch.inference_mode()
    def install(self, name: str, packed: PackedAdapter) -> None:
        """Put an adapter into a slot: one copy of its own size. Plans stay valid."""
        assert name not in self._places
        shelf = self._open_shelf(packed.layout)
        self._places[name] = shelf, shelf.add(name, packed.weights)

    def add(self, name: str, adapter: Adapter) -> None:
        """Pack and install. Raises: ValueError as `pack` does."""
        self.install(name, self.pack(adapter))

    @torch.inference_mode()
    def remove(self, name: str) -> None:
        """Free its slot, and its shelf if it was the last. Another may move: see `revision`."""
        shelf, slot = self._places.pop(name)
        moved = shelf.remove(slot)
        if moved is not None:
            self._places[moved] = shelf, slot
            self.revision += 1
        if not shelf.names:
            self._close_shelves(shelf.layout.key)

    def order(self, names: Sequence[str]) -> list[int]:
        """The order of rows (indices of `names`) that needs the least work: by shelf and slot."""
        rank = {
            name: index
            for index, name in enumerate(
                name for shelves in self._shelves.values() for s in shelves for name in s.names
            )
        }
        return sorted(range(len(names)), key=lambda row: rank[names[row]])

    def plan(self, names: Sequence[str], counts: Sequence[int] | None = None) -> LoraPlan:
        """Rows in the order of the batch: counts[i] of them for names[i]; None: one each.

        The sum of the counts is N. Valid while `revision` and the rows stay.
        """
        by_shelf: dict[int, tuple[Shelf, list[Segment]]] = {}
        row = 0
        for index, name in enumerate(names):
            stop = row + (1 if counts is None else counts[index])
            shelf, slot = self._places[name]
            segments = by_shelf.setdefault(id(shelf), (shelf, []))[1]
            if segments and segments[-1].slot == slot and segments[-1].stop == row:
                segments[-1].stop = stop
            elif stop > row:
                segments.append(Segment(slot, row, stop))
            row = stop
        runs = [
            run
            for shelf, segments in by_shelf.values()
            for run in runs_of(shelf, segments, row, self._device)
        ]
        return LoraPlan(tuple(runs))

    def _open_shelf(self, layout: SlotLayout) -> Shelf:
        """The first one with room; a new one if there is none."""
        with self._lock:
            shelves = self._shelves.setdefault(layout.key, [])
            for shelf in shelves:
                if shelf.has_room:
                    return shelf
            shelves.append(Shelf(layout, self._device))
            return shelves[-1]

    def _close_shelves(self, key: LayoutKey) -> None:
        """Free those that are empty."""
        with self._lock:
            self._shelves[key] = [shelf for shelf in self._shelves[key] if shelf.names]
            if not self._shelves[key]:
                del self._shelves[key]
