"""Memory for the slots of one layout: a fixed number of them, touched only where written.

Adding an adapter never copies another. On the CPU a shelf is an anonymous mapping: a slot that was
never written takes no memory, and one that is cleared gives its pages back.
"""

from __future__ import annotations

import mmap
import sys

import torch
from torch import Tensor

from .layout import PAGE_BYTES, SlotLayout

MAX_SLOTS = 128  # of a shelf: a run of one batch never crosses to the next
MAX_MAPPED_BYTES = 4 << 30  # addresses, not memory
MAX_DEVICE_BYTES = 256 << 20  # other devices give the whole shelf its memory at once


class Shelf:
    """Slots 0 … num_slots-1; the first len(names) are in use."""

    def __init__(self, layout: SlotLayout, device: torch.device) -> None:
        self.layout = layout
        self.names: list[str] = []  # by slot
        is_mapped = device.type == "cpu"
        most = MAX_MAPPED_BYTES if is_mapped else MAX_DEVICE_BYTES
        self.num_slots = max(1, min(MAX_SLOTS, most // layout.num_bytes))
        size = self.num_slots * layout.num_elements
        self._mapping = _mapped(size * layout.dtype.itemsize) if is_mapped else None
        if self._mapping is not None:
            self.flat = torch.frombuffer(self._mapping, dtype=layout.dtype, count=size)
        else:
            self.flat = torch.empty(size, dtype=layout.dtype, device=device)

    @property
    def has_room(self) -> bool:
        return len(self.names) < self.num_slots

    def add(self, name: str, packed: Tensor) -> int:
        """Copy a packed adapter into the next slot; returns which."""
        slot = len(self.names)
        self._slot(slot).copy_(packed)
        self.names.append(name)
        return slot

    def remove(self, slot: int) -> str | None:
        """Clear a slot; returns the name that was moved into it from the last one, if any."""
        last = len(self.names) - 1
        moved = self.names.pop()
        if slot != last:
            self._slot(slot).copy_(self._slot(last))
            self.names[slot] = moved
        self._forget(last)
        return moved if slot != last else None

    def matrices(self, start: int, stop: int, offset: int, rows: int, columns: int) -> Tensor:
        """The matrix at `offset` of each slot from start to stop-1, without a copy: (S, rows,
        columns)."""
        stride = self.layout.num_elements
        return self.flat.as_strided(
            (stop - start, rows, columns), (stride, columns, 1), start * stride + offset
        )

    def _slot(self, slot: int) -> Tensor:
        size = self.layout.num_elements
        return self.flat[slot * size : (slot + 1) * size]

    def _forget(self, slot: int) -> None:
        """Linux gives the pages back; elsewhere the slot keeps them until it is written again."""
        if self._mapping is not None and sys.platform == "linux" and not mmap.PAGESIZE % PAGE_BYTES:
            size = self.layout.num_bytes
            if size % mmap.PAGESIZE == 0:
                self._mapping.madvise(mmap.MADV_DONTNEED, slot * size, size)


def _mapped(num_bytes: int) -> mmap.mmap:
    """Addresses without memory; huge pages halve the misses of a product that reads all of them."""
    if sys.platform != "linux":
        return mmap.mmap(-1, num_bytes)
    mapping = mmap.mmap(-1, num_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    mapping.madvise(mmap.MADV_HUGEPAGE)
    return mapping
