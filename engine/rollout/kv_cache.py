"""Keys and values of all running sequences, a slot each.

Slots are dense, 0 … n-1, so that attention reads one slice. Invariant: a position that its slot's
present owner has not written is zero. (A masked position still meets a weight of 0 in the product,
and 0 times a stranger's NaN would be NaN.)
"""

from __future__ import annotations

import torch
from torch import Tensor

LENGTH_STEP = 128  # the cache grows by so many positions at a time


class KvCache:
    """(L, slots, kv heads, T, head dim) for keys and for values; T grows to what is needed."""

    def __init__(
        self,
        num_layers: int,
        num_slots: int,
        num_heads: int,
        head_dim: int,
        dtype: torch.dtype,
        device: torch.device,
    ) -> None:
        self.num_slots = num_slots
        self._size = (num_layers, num_slots, num_heads, 0, head_dim)
        self.keys = torch.zeros(self._size, dtype=dtype, device=device)
        self.values = torch.zeros_like(self.keys)

    @property
    def num_bytes(self) -> int:
        return 2 * self.keys.numel() * self.keys.element_size()

    def reserve(self, length: int) -> None:
        """Make room for sequences of `length` tokens."""
        if length <= self.keys.shape[3]:
            return
        rounded = -(-length // LENGTH_STEP) * LENGTH_STEP
        self.keys, self.values = self._grown(self.keys, rounded), self._grown(self.values, rounded)

    def _grown(self, old: Tensor, length: int) -> Tensor:
        new = old.new_zeros((*self._size[:3], length, self._size[4]))
        new[:, :, :, : old.shape[3]] = old
        return new

    def write(self, layer: int, slots: Tensor, positions: Tensor, k: Tensor, v: Tensor) -> None:
        """k, v: (N, kv heads, head dim) to (slots[i], positions[i]), both int64 (N)."""
        self.keys[layer, slots, :, positions] = k
        self.values[layer, slots, :, positions] = v

    def copy(self, source: int, target: int, length: int) -> None:
        """The first `length` positions of a slot to another, which must be clear."""
        for cache in (self.keys, self.values):
            cache[:, target, :, :length] = cache[:, source, :, :length]

    def clear(self, slot: int, length: int) -> None:
        """Forget the first `length` positions of a slot."""
        for cache in (self.keys, self.values):
            cache[:, slot, :, :length] = 0

    def clear_all(self) -> None:
        """Forget everything; the memory is kept."""
        self.keys.zero_()
        self.values.zero_()
