"""Memory for the slots of one layout: a fixed number of them, touched only where written.

The same matrix of all slots lies together, so that a range of slots is one contiguous batch, since
batched products in bf16 copy anything else first. Adding an adapter never copies another.
"""

from __future__ import annotations

import torch
from torch import Tensor

from .layout import SlotLayout
from .pages import enlarge_pages, take_pages, untouched

MAX_SLOTS = 32  # of a shelf. A run ends at its border: fewer are more products a step; more take
# longer to be full, and only full shelves get huge pages
MAX_DEVICE_BYTES = 256 << 20  # devices other than the CPU give a shelf all its memory at once


class Shelf:
    """Slots 0 … num_slots-1; the first len(names) are in use."""

    def __init__(self, layout: SlotLayout, device: torch.device) -> None:
        self.layout = layout
        self.names: list[str] = []  # by slot
        self.num_slots = MAX_SLOTS
        if device.type != "cpu":
            self.num_slots = max(1, min(MAX_SLOTS, MAX_DEVICE_BYTES // layout.num_bytes))
        self._flat = untouched(self.num_slots * layout.num_elements, layout.dtype, device)
        self._huge_pages = enlarge_pages(self._flat)

    @property
    def has_room(self) -> bool:
        return len(self.names) < self.num_slots

    def add(self, name: str, packed: Tensor) -> int:
        """Copy a packed adapter into the next slot; returns which."""
        slot = len(self.names)
        sources = [packed[offset : offset + size] for offset, size in self.layout.matrices]
        torch._foreach_copy_(self._parts(slot), sources)
        self.names.append(name)
        return slot

    def remove(self, slot: int) -> str | None:
        """Free a slot; returns the name that was moved into it from the last one, if any."""
        last = len(self.names) - 1
        moved = self.names.pop()
        if slot == last:
            return None
        torch._foreach_copy_(self._parts(slot), self._parts(last))
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
            for part in self._parts(slot):
                take_pages(part)

    def enlarge_pages(self) -> bool:
        """One more huge page; False if all are. Worth it for a full shelf. One thread at a time."""
        return next(self._huge_pages, None) is not None

    def _parts(self, slot: int) -> list[Tensor]:
        """The slot's matrices, flat, in the layout's order."""
        parts: list[Tensor] = []
        for offset, size in self.layout.matrices:
            first = offset * self.num_slots + slot * size
            parts.append(self._flat[first : first + size])
        return parts
