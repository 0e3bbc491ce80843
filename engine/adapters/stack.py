"""Many adapters at once: stacked by rank class, applied to a mixed batch by batched products.

A rank class holds every adapter in use whose rank rounds up to the same power of two, in dense
slots 0 … S-1 of one tensor for each layer and projection. A batch's rows are gathered into runs of
adjacent slots, padded to the longest of the run; a run is cut where padding would more than double
the work. Padding a rank with zeros changes nothing in the product.

Knows nothing of files, digests or reference counts. Invariant: a name maps to one slot of one
class; slots are dense, because removing moves the last one into the hole.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from .files import Adapter, lora_names

FUSED = {
    "qkv": ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
    "o": ("self_attn.o_proj",),
    "gate_up": ("mlp.gate_proj", "mlp.up_proj"),
    "down": ("mlp.down_proj",),
}
MIN_RANK_CLASS = 8
MIN_SLOTS = 4  # a class starts with room for so many and doubles


@dataclass(frozen=True)
class Run:
    """Adjacent slots of one rank class, and which rows of the batch each of them has."""

    stack: RankClass
    start: int
    stop: int
    gather: Tensor  # (S, G) int64: rows of the batch by slot; padded with row 0
    rows: Tensor  # (n) int64: rows that this run changes
    picks: Tensor  # (n) int64: where each of them stands in the flattened (S, G)


@dataclass(frozen=True)
class LoraPlan:
    """How one batch composition meets the stacks. Valid until an adapter is added or removed."""

    runs: tuple[Run, ...] = ()

    def apply(self, layer: int, fused: str, x: Tensor, y: Tensor) -> Tensor:
        """y + each row's own scale · B A x.

        x: (N, in), y: (N, out) of the fused projection; y is changed in place and returned.
        """
        for run in self.runs:
            delta = run.stack.product(layer, fused, x[run.gather], run.start, run.stop)
            y.index_add_(0, run.rows, delta.flatten(0, 1)[run.picks])
        return y


@dataclass
class RankClass:
    """The stacked weights of all adapters of one rank class; the scale is part of B."""

    rank: int
    shapes: Mapping[str, tuple[int, int]]  # (out, in) by module name
    num_layers: int
    dtype: torch.dtype
    device: torch.device
    names: list[str] = field(default_factory=list)  # by slot
    down: dict[tuple[int, str], Tensor] = field(default_factory=dict)  # A: (S, in, pieces · R)
    up: dict[tuple[int, str], list[Tensor]] = field(default_factory=dict)  # B: (S, R, out) a piece

    def product(self, layer: int, fused: str, x: Tensor, start: int, stop: int) -> Tensor:
        """x: (S, G, in) for slots start … stop-1. Returns (S, G, out of all pieces)."""
        low = torch.bmm(x, self.down[layer, fused][start:stop])
        ups = self.up[layer, fused]
        parts = [
            torch.bmm(a, b[start:stop]) for a, b in zip(low.split(self.rank, -1), ups, strict=True)
        ]
        return parts[0] if len(parts) == 1 else torch.cat(parts, -1)

    def add(self, name: str, adapter: Adapter) -> None:
        slot = len(self.names)
        self._make_room(slot + 1)
        for layer, fused in self._keys():
            for piece, module in enumerate(_modules(layer, fused)):
                a, b = (adapter.tensors.get(n) for n in lora_names(module))
                self._write(slot, (layer, fused), piece, a, b, adapter.scale)
        self.names.append(name)

    def remove(self, name: str) -> None:
        hole, last = self.names.index(name), len(self.names) - 1
        if hole != last:
            for tensor in self._tensors():
                tensor[hole] = tensor[last]
            self.names[hole] = self.names[last]
        self.names.pop()

    def _write(
        self,
        slot: int,
        key: tuple[int, str],
        piece: int,
        a: np.ndarray | None,
        b: np.ndarray | None,
        scale: float,
    ) -> None:
        """One module's weights into a slot; a module without adapter gets zeros."""
        low = self.down[key][slot, :, piece * self.rank : (piece + 1) * self.rank].zero_()
        high = self.up[key][piece][slot].zero_()
        if a is not None and b is not None:
            rank = a.shape[0]
            low[:, :rank] = torch.from_numpy(a.T)
            high[:rank] = torch.from_numpy(b.T) * scale

    def _make_room(self, num_slots: int) -> None:
        size = len(self.down[0, "qkv"]) if self.down else 0
        if num_slots <= size:
            return
        for layer, fused in self._keys():
            modules = _modules(layer, fused)
            num_in = self.shapes[modules[0]][1]
            old = self.up.get((layer, fused), [None] * len(modules))
            self.down[layer, fused] = self._grown(
                self.down.get((layer, fused)), size, num_in, len(modules) * self.rank
            )
            self.up[layer, fused] = [
                self._grown(tensor, size, self.rank, self.shapes[module][0])
                for tensor, module in zip(old, modules, strict=True)
            ]

    def _grown(self, old: Tensor | None, size: int, rows: int, columns: int) -> Tensor:
        new_size = max(MIN_SLOTS, 2 * size)
        new = torch.zeros(new_size, rows, columns, dtype=self.dtype, device=self.device)
        if old is not None:
            new[:size] = old
        return new

    def _keys(self) -> list[tuple[int, str]]:
        return [(layer, fused) for layer in range(self.num_layers) for fused in FUSED]

    def _tensors(self) -> list[Tensor]:
        return [*self.down.values(), *(b for pieces in self.up.values() for b in pieces)]


class AdapterStack:
    """Every adapter that some sequence in the engine uses, by name."""

    def __init__(
        self,
        shapes: Mapping[str, tuple[int, int]],
        num_layers: int,
        dtype: torch.dtype,
        device: torch.device,
    ) -> None:
        """shapes: (out, in) of every linear layer, by PEFT's module name."""
        self._shapes, self._num_layers = shapes, num_layers
        self._dtype, self._device = dtype, device
        self._classes: dict[int, RankClass] = {}
        self._class_of: dict[str, int] = {}

    @property
    def names(self) -> list[str]:
        return sorted(self._class_of)

    def add(self, name: str, adapter: Adapter) -> None:
        """Raises: ValueError if a module is not the base model's, or its shape does not fit."""
        for module in adapter.modules:
            a, b = (adapter.tensors[n] for n in lora_names(module))
            if self._shapes.get(module) != (b.shape[0], a.shape[1]):
                raise ValueError(
                    f"{module} of shape {(b.shape[0], a.shape[1])} does not fit the base"
                )
        rank = _rank_class(adapter.rank)
        if rank not in self._classes:
            self._classes[rank] = RankClass(
                rank, self._shapes, self._num_layers, self._dtype, self._device
            )
        self._classes[rank].add(name, adapter)
        self._class_of[name] = rank

    def remove(self, name: str) -> None:
        """A class without adapters gives its memory back."""
        rank = self._class_of.pop(name)
        self._classes[rank].remove(name)
        if not self._classes[rank].names:
            del self._classes[rank]

    def plan(self, names: Sequence[str]) -> LoraPlan:
        """names: the adapter of each row (N)."""
        rows: dict[str, list[int]] = {}
        for row, name in enumerate(names):
            rows.setdefault(name, []).append(row)
        runs: list[Run] = []
        for stack in self._classes.values():
            by_slot = [rows.get(name, []) for name in stack.names]
            runs += [self._run(stack, *cut, by_slot) for cut in cut_runs([*map(len, by_slot)])]
        return LoraPlan(tuple(runs))

    def _run(self, stack: RankClass, start: int, stop: int, by_slot: list[list[int]]) -> Run:
        slots = by_slot[start:stop]
        width = max(map(len, slots))
        gather = [rows + [0] * (width - len(rows)) for rows in slots]
        picks = [s * width + g for s, rows in enumerate(slots) for g in range(len(rows))]
        flat = [row for rows in slots for row in rows]
        to = self._device
        return Run(
            stack,
            start,
            stop,
            torch.tensor(gather, device=to),
            torch.tensor(flat, device=to),
            torch.tensor(picks, device=to),
        )


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


def _rank_class(rank: int) -> int:
    return max(MIN_RANK_CLASS, 1 << (rank - 1).bit_length())


def _modules(layer: int, fused: str) -> list[str]:
    return [f"model.layers.{layer}.{name}" for name in FUSED[fused]]
