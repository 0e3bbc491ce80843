"""Memory for the slots of one layout: a fixed number of them, touched only where written.

The same matrix of all slots lies together, so that a range of slots is one contiguous batch, since
batched products in bf16 copy anything else first. Adding an adapter never copies another.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ..native.pages import enlarge_pages, take_pages, untouched
from .layout import SlotLayout

MAX_SLOTS = 32  # of a shelf. A run ends at its border: fewer are more products a step; more take
# longer to be full, and only full shelves get huge pages
MAX_DEVICE_BYTES = 256 << 20  # devices other than the CPU give a shelf all its memory at once
BITS = {2: torch.int16, 4: torch.int32}  # by bytes of a number


class Shelf:
    """Slots 0 … num_slots-1; the first len(names) are in use."""

    def __init__(self, layout: SlotLayout, device: torch.device) -> None:
        self.layout = layout
        self.names: list[str] = []  # by slot
        self.num_slots = MAX_SLOTS
        if device.type != "cpu":
            self.num_slots = max(1, min(MAX_SLOTS, MAX_DEVICE_BYTES // layout.num_bytes))
        self._flat = untouched(self.num_slots * layout.num_elements, layout.dtype, device)
        self._numbers = _bits(self._flat)
        self._huge_pages = enlarge_pages(self._flat)

    @property
    def has_room(self) -> bool:
        return len(self.names) < self.num_slots

    def add(self, name: str, packed: Tensor) -> int:
        """Copy a packed adapter into the next slot; returns which."""
        slot = len(self.names)
        source = _bits(packed)
        for (offset, size), first in zip(self.layout.matrices, self._firsts(slot), strict=True):
            self._numbers[first : first + size] = source[offset : offset + size]
        self.names.append(name)
        return slot

    def remove(self, slot: int) -> str | None:
        """Free a slot; returns the name that was moved into it from the last one, if any."""
        last = len(self.names) - 1
        moved = self.names.pop()
        if slot == last:
            return None
        numbers = self._numbers
        firsts = zip(self.layout.matrices, self._firsts(slot), self._firsts(last), strict=True)
        for (_, size), to, start in firsts:
            numbers[to : to + size] = numbers[start : start + size]
        self.names[slot] = moved
        return moved

    def matrices(self, start: int, stop: int, offset: int, rows: int, columns: int) -> Tensor:
        """That matrix of the slots start … stop-1, without a copy: (S, rows, columns)."""
        size = rows * columns
        first = offset * self.num_slots + start * size
        return self._flat[first : first + (stop - start) * size].view(-1, rows, columns)

    def take_pages(self, slot: int) -> None:
        """So that `add` need not wait for memory. Any thread may call it at any time."""
        if slot < self.num_slots:
            for (_, size), first in zip(self.layout.matrices, self._firsts(slot), strict=True):
                take_pages(self._flat[first : first + size])

    def enlarge_pages(self) -> bool:
        """One more huge page; False if all are. Worth it for a full shelf. One thread at a time."""
        return next(self._huge_pages, None) is not None

    def _firsts(self, slot: int) -> list[int]:
        """Where each of the slot's matrices starts, in the layout's order."""
        return [offset * self.num_slots + slot * size for offset, size in self.layout.matrices]


def _bits(flat: Tensor) -> Any:
    """The same memory as whole numbers, to be copied by slices: on the CPU by numpy, which copies
    hundreds of small pieces twice as fast as torch and in the calling thread alone."""
    bits = flat.view(BITS[flat.itemsize])
    return bits.numpy() if flat.device.type == "cpu" else bits
