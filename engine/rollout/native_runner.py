"""The forward pass on a CPU in bfloat16: products, and native kernels between them.

A layer is four products (projection.py) and four calls (engine/native/kernels.c), each of which is
one parallel region: that a core has to be woken some 240 times a step, and not some thousands of
times, is what makes this several times faster where idle threads sleep. Takes the place of
ModelRunner and Attention, with the same methods.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..adapters.units import UnitPlan
from ..models.load import LoadedModel
from ..native.build import native
from ..native.structs import Attending, address
from .attention import Chunk, ChunkSegment, chunk_segment
from .kv_arena import KvArena
from .projection import PANEL, most_rows
from .runner import ModelRunner, head_dim_of

PAIRS = 32  # numbers that kernels.c multiplies at once, two in each lane: sizes are multiples of it
MAX_GROUP, MAX_HEAD_DIM = 16, 256
SHORT_CHUNK = 64  # tokens; attention of longer ones is a product of matrices


def can_run_natively(base: LoadedModel) -> bool:
    """Whether there are kernels for this model on this machine."""
    if base.device.type != "cpu" or base.dtype != torch.bfloat16:
        return False
    config = base.config
    head_dim = head_dim_of(config)
    sizes = (config.hidden_size, config.intermediate_size, head_dim)
    is_plain = config.hidden_act == "silu" and not any(size % PAIRS for size in sizes)
    group = config.num_attention_heads // config.num_key_value_heads
    fits = group <= MAX_GROUP and head_dim <= MAX_HEAD_DIM
    return is_plain and fits and _rotates_whole_heads(config) and native().kernels is not None


def _rotates_whole_heads(config: Any) -> bool:
    rope = getattr(config, "rope_parameters", None) or {}
    return bool(rope.get("partial_rotary_factor", 1.0) == 1.0)


@dataclass(frozen=True)
class NativeAttention:
    """Where each row's keys and values are, and which rows the kernels attend for."""

    arena: KvArena
    firsts: Tensor  # (N) int64
    lengths: Tensor
    positions: Tensor
    attending: np.ndarray[Any, Any]  # int32
    segments: tuple[ChunkSegment, ...]  # of the other rows

    @classmethod
    def arrange(
        cls, arena: KvArena, positions: Mapping[str, int], chunks: Sequence[Chunk], *_: Any
    ) -> tuple[list[str], tuple[Any, ...]]:
        """As Attention's: decoding rows may stay in any order."""
        order = list(positions)
        start = len(order)
        attending = list(range(start))
        segments: list[ChunkSegment] = []
        for owner, past, count in chunks:
            if count <= SHORT_CHUNK:
                attending += range(start, start + count)
            else:
                row = arena.row_of(owner)
                segments.append(chunk_segment(row, start, count, past, torch.device("cpu")))
            start += count
        return order, (np.array(attending, np.int32), tuple(segments))


@dataclass(frozen=True)
class AdaptedProduct:
    """One fused projection of one layer, for the kernels: see finish_product in kernels.c."""

    target: int  # address
    x: Tensor
    product: Tensor
    deltas: Tensor | None

    @property
    def addresses(self) -> tuple[int, int, int, int]:
        """Valid while this lives."""
        return self.target, address(self.x), address(self.product), address(self.deltas)


class NativeRunner(ModelRunner):
    """See ModelRunner."""

    def __init__(self, base: LoadedModel, max_length: int) -> None:
        super().__init__(base, max_length)
        kernels = native().kernels
        assert kernels is not None
        self._kernels = kernels
        self._cos, self._sin = self._cos.float().contiguous(), self._sin.float().contiguous()
        self._norms = [
            (_weight(layer.input_norm), _weight(layer.post_norm)) for layer in self._layers
        ]
        self._last_norm = _weight(self._core.norm)
        self._held = [(_weight(x.q_norm), _weight(x.k_norm)) for x in self._layers]
        self._head_norms = [(address(q), address(k)) for q, k in self._held]
        self._epsilon = float(self._core.norm.variance_epsilon)
        self._table = self._core.embed_tokens.weight
        self._num_inner = base.config.intermediate_size
        self._widest = max(p.num_out for layer in self._layers for p in layer.fused.values())

    def forward(  # type: ignore[override]
        self, ids: Tensor, positions: Tensor, attend: NativeAttention, lora: UnitPlan
    ) -> Tensor:
        """ids, positions: int64 (N). Returns the last hidden state, normed: (N, H)."""
        call, count, size = self._kernels, len(ids), self._table.shape[1]
        residual = torch.empty(count, size)
        h = torch.empty(count, size, dtype=self.dtype)
        units, epsilon = lora.address, self._epsilon
        first_norm = address(self._norms[0][0])
        sums, normed, table = address(residual), address(h), address(self._table)
        call.embed(count, address(ids), table, size, sums, first_norm, epsilon, normed)
        room = torch.empty(2, count * self._widest)  # what a product is made in
        about = self._about(attend)
        for index in range(self.num_layers):
            mixed = self._attend(index, h, attend, about, lora, room)
            product = self._product(index, "o", mixed, lora, room)
            norm = address(self._norms[index][1])
            call.after_residual(units, *product.addresses, sums, norm, epsilon, normed)
            product = self._product(index, "gate_up", h, lora, room)
            inner = torch.empty(count, self._num_inner, dtype=self.dtype)
            call.after_gate_up(units, *product.addresses, address(inner))
            product = self._product(index, "down", inner, lora, room)
            norm = address(self._norm_after(index))
            call.after_residual(units, *product.addresses, sums, norm, epsilon, normed)
        return h

    def logits(self, hidden: Tensor, shifts: Tensor) -> Tensor:
        """As ModelRunner's; the head stays as it is, for the embeddings may be the same numbers."""
        num_out, num_in = self._head.weight.shape
        if len(hidden) > most_rows() or num_out % PANEL or num_in % PANEL:
            return super().logits(hidden, shifts)
        shifts, hidden = shifts.to(self.dtype).float(), hidden.contiguous()
        out = hidden.new_empty(len(hidden), num_out)
        arrays = (hidden, self._head.weight, shifts, out)
        self._kernels.plain_product(len(hidden), num_in, num_out, *map(address, arrays))
        return out

    def _product(
        self, index: int, fused: str, x: Tensor, lora: UnitPlan, room: Tensor
    ) -> AdaptedProduct:
        """room: as Projection.with_adapters takes it; valid until the next one is made."""
        target = lora.target(index, fused)
        projection = self._layers[index].fused[fused]
        return AdaptedProduct(target, x, *projection.with_adapters(x, lora, target, room))

    def _about(self, attend: NativeAttention) -> Attending:
        """For the kernels; a layer's norms of heads are put in for each."""
        return Attending(
            self.num_heads,
            self.num_kv_heads,
            self.head_dim,
            address(self._cos),
            address(self._sin),
            None,
            None,
            self._epsilon,
            self.head_dim**-0.5,
            len(attend.attending),
            address(attend.attending),
            address(attend.positions),
            address(attend.firsts),
            address(attend.lengths),
        )

    def _attend(
        self,
        index: int,
        h: Tensor,
        attend: NativeAttention,
        about: Attending,
        lora: UnitPlan,
        room: Tensor,
    ) -> Tensor:
        """(N, heads · D)."""
        out = torch.empty(len(h), self.num_heads * self.head_dim, dtype=self.dtype)
        about.q_norm, about.k_norm = self._head_norms[index]
        product = self._product(index, "qkv", h, lora, room)
        self._kernels.after_qkv(
            lora.address,
            *product.addresses,
            ctypes.addressof(about),
            address(attend.arena.layer(index)),
            address(out),
        )
        q = out.unflatten(-1, (-1, self.head_dim))  # of rows that are not attended for yet
        for segment in attend.segments:
            out[segment.start : segment.stop] = segment.attend(attend.arena, index, q)
        return out

    def _norm_after(self, index: int) -> Tensor:
        """The norm that the layer's output meets next."""
        is_last = index + 1 == len(self._layers)
        return self._last_norm if is_last else self._norms[index + 1][0]


def _weight(norm: Any) -> Any:
    """float32, or None if there is no such norm."""
    return None if norm is None else norm.weight.detach().float().contiguous()
