"""A frozen linear layer of the base model in the form in which the device multiplies fastest.

On CPUs whose bfloat16 products go through oneDNN, a plain weight is brought into that library's
layout at every call; done once, a decode step's products take about two thirds of the time. The
layout takes the place of the plain weight, so the base model is in memory once. The operators are
those that torch's own compiler uses for frozen linear layers; torch is pinned.

Products of ours (engine/native/products.c) apply adapters beside a product, while the weights of
these are fetched. Where they go by AVX-512 they are for any number of rows, and the weight is kept
as they read it. Where they go by AMX they are for few rows: they read what oneDNN packed, if it
lies as they know it, and many rows are oneDNN's.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from ..adapters.units import UnitPlan
from ..native.build import native
from ..native.pages import zeros_in_huge_pages
from ..native.structs import address

FEW_ROWS = 160  # by tiles ours was faster with 128 rows, oneDNN's with 512, on a Xeon with AMX
PANEL = 32  # as in products.c


def most_rows() -> int:
    """That are multiplied by a product of ours; 0: there are none."""
    return {"": 0, "tiles": FEW_ROWS, "vectors": sys.maxsize}[native().products]


class Projection:
    """One or several linear layers of the same input, as one product."""

    def __init__(self, modules: Sequence[Any]) -> None:
        """Takes the modules' weights over: on the CPU they have none of their own afterwards."""
        weight = torch.cat([module.weight.data for module in modules])
        self._bias = _bias_of(modules)
        self._shape = weight.shape
        self._is_packed = False  # by oneDNN
        self._address = 0  # where our products find it
        if _can_pack(weight):
            self._pack(weight)
            for module in modules:
                module.weight.data = weight.new_empty(0)
        else:
            self._weight = weight
            sizes = [module.weight.shape[0] for module in modules]
            for module, part in zip(modules, weight.split(sizes), strict=True):
                module.weight.data = part

    def _pack(self, weight: Tensor) -> None:
        self._wide_bias = None if self._bias is None else self._bias.float()
        by = native().products if not any(size % PANEL for size in weight.shape) else ""
        if by == "vectors":
            self._weight = _panels(weight)
            self._address = address(self._weight)
            return
        self._is_packed = True
        self._weight = torch.ops.mkldnn._reorder_linear_weight(weight, None)
        if by == "tiles":
            self._address = _known_address(weight, self._weight)

    @property
    def num_out(self) -> int:
        """Of all modules together."""
        return self._shape[0]

    def __call__(self, x: Tensor) -> Tensor:
        """(N, in) to (N, out of all modules)."""
        if self._is_ours(x):
            return self._product(x.contiguous())
        if self._is_packed:
            return torch.ops.mkldnn._linear_pointwise(x, self._weight, self._bias, "none", [], "")
        return F.linear(x, self._weight, self._bias)

    def with_adapters(
        self, x: Tensor, units: UnitPlan, target: int, room: Tensor
    ) -> tuple[Tensor, Tensor | None]:
        """For the native kernels: (product, deltas), as `finish_product` in kernels.c takes them.

        x: (N, in) contiguous; target: as UnitPlan's; room: float32 (2, at least N · out), which the
        two lie in if there are deltas.
        """
        if not self._is_ours(x):
            return self(x), None
        assert x.is_contiguous() and room.numel() >= 2 * len(x) * self.num_out
        kernels = native().kernels
        assert kernels is not None
        matrix, bias = self._address, address(self._wide_bias)
        sums, deltas = room
        kernels.adapted_product(
            len(x), units.address, target, address(x), matrix, bias, address(sums), address(deltas)
        )
        return sums, deltas

    def _is_ours(self, x: Tensor) -> bool:
        """Also checks what the kernels trust in."""
        assert x.ndim == 2 and x.shape[1] == self._shape[1], f"{tuple(x.shape)} by {self._shape}"
        return bool(self._address) and x.dtype == torch.bfloat16 and len(x) <= most_rows()

    def _product(self, x: Tensor) -> Tensor:
        kernels, (num_out, num_in) = native().kernels, self._shape
        assert kernels is not None
        out = x.new_empty(len(x), num_out)
        arrays = address(x), self._address, address(self._wide_bias), address(out)
        kernels.product(len(x), num_in, num_out, *arrays)
        return out


def _bias_of(modules: Sequence[Any]) -> Tensor | None:
    """Of all modules; zeros of those that have none while others do."""
    if all(module.bias is None for module in modules):
        return None
    biases = [m.weight.new_zeros(len(m.weight)) if m.bias is None else m.bias.data for m in modules]
    return torch.cat(biases)


def _panels(weight: Tensor) -> Tensor:
    """As products.c reads it, flat."""
    num_out, num_in = weight.shape
    packed = zeros_in_huge_pages(weight.numel(), weight.dtype)
    pairs = weight.view(num_out // PANEL, PANEL, num_in // 2, 2).transpose(1, 2)
    packed.view(pairs.shape).copy_(pairs)
    return packed


def _known_address(weight: Tensor, packed: Tensor) -> int:
    """Where oneDNN's copy lies, if it lies as our products read it; else 0."""
    size = weight.numel() * weight.itemsize
    if any(size % PANEL for size in weight.shape) or torch.ops.mkldnn._nbytes(packed) != size:
        return 0
    start = int(torch.ops.mkldnn.data_ptr(packed))
    found = np.ctypeslib.as_array((ctypes.c_uint16 * weight.numel()).from_address(start))
    same = np.array_equal(found, _panels(weight).view(torch.uint16).numpy())
    return start if same else 0


def _can_pack(weight: Tensor) -> bool:
    return (
        weight.device.type == "cpu"
        and weight.dtype == torch.bfloat16
        and torch.backends.mkldnn.is_available()
        and torch.ops.mkldnn._is_mkldnn_bf16_supported()
    )
