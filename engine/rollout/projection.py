"""A frozen linear layer of the base model in the form in which the device multiplies fastest.

On CPUs whose bfloat16 products go through oneDNN, a plain weight is brought into that library's
layout at every call; done once, a decode step's products take about two thirds of the time. The
layout takes the place of the plain weight, so the base model is in memory once. The operators are
those that torch's own compiler uses for frozen linear layers; torch is pinned. Few rows are
multiplied by a kernel of ours that reads the same layout, where it is the one that the kernel
knows: a decode step of eight sequences then takes three quarters of the time.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from ..native.build import native
from ..native.structs import address

FEW_ROWS = 160  # ours was faster with 128 rows, oneDNN's with 512, on a Xeon with AMX


class Projection:
    """One or several linear layers of the same input, as one product."""

    def __init__(self, modules: Sequence[Any]) -> None:
        """Takes the modules' weights over: on the CPU they have none of their own afterwards."""
        weight = torch.cat([module.weight.data for module in modules])
        biases = [module.bias.data for module in modules if module.bias is not None]
        self._bias = torch.cat(biases) if biases else None
        self._is_packed = _can_pack(weight)
        if self._is_packed:
            self._weight = torch.ops.mkldnn._reorder_linear_weight(weight, None)
            self._shape, self._address = weight.shape, _known_address(weight, self._weight)
            self._wide_bias = None if self._bias is None else self._bias.float()
            for module in modules:
                module.weight.data = weight.new_empty(0)
        else:
            self._weight = weight
            sizes = [module.weight.shape[0] for module in modules]
            for module, part in zip(modules, weight.split(sizes), strict=True):
                module.weight.data = part

    def __call__(self, x: Tensor) -> Tensor:
        """(N, in) to (N, out of all modules)."""
        if self._is_packed and self._address and len(x) <= FEW_ROWS:
            return self._of_few_rows(x.contiguous())
        if self._is_packed:
            return torch.ops.mkldnn._linear_pointwise(x, self._weight, self._bias, "none", [], "")
        return F.linear(x, self._weight, self._bias)

    def _of_few_rows(self, x: Tensor) -> Tensor:
        kernels, (num_out, num_in) = native().kernels, self._shape
        assert kernels is not None
        out = x.new_empty(len(x), num_out)
        arrays = address(x), self._address, address(self._wide_bias), address(out)
        kernels.product(len(x), num_in, num_out, *arrays)
        return out


def _known_address(weight: Tensor, packed: Tensor) -> int:
    """Where oneDNN's copy lies, if it lies as our kernel reads it; else 0."""
    num_out, num_in = weight.shape
    if not native().has_products or num_out % 32 or num_in % 32:
        return 0
    start = int(torch.ops.mkldnn.data_ptr(packed))
    expected = weight.view(num_out // 32, 32, num_in // 32, 16, 2).permute(0, 2, 3, 1, 4)
    size = weight.numel() * weight.itemsize
    if torch.ops.mkldnn._nbytes(packed) != size:
        return 0
    found = np.ctypeslib.as_array((ctypes.c_uint16 * weight.numel()).from_address(start))
    same = np.array_equal(found, expected.contiguous().view(torch.uint16).numpy().ravel())
    return start if same else 0


def _can_pack(weight: Tensor) -> bool:
    return (
        weight.device.type == "cpu"
        and weight.dtype == torch.bfloat16
        and torch.backends.mkldnn.is_available()
        and torch.ops.mkldnn._is_mkldnn_bf16_supported()
    )
