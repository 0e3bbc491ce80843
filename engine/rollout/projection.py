"""A frozen linear layer of the base model in the form in which the device multiplies fastest.

On CPUs whose bfloat16 products go through oneDNN, a plain weight is brought into that library's
layout at every call; done once, a decode step's products take about two thirds of the time. The
layout takes the place of the plain weight, so the base model is in memory once. The operators are
those that torch's own compiler uses for frozen linear layers; torch is pinned.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor


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
            for module in modules:
                module.weight.data = weight.new_empty(0)
        else:
            self._weight = weight
            sizes = [module.weight.shape[0] for module in modules]
            for module, part in zip(modules, weight.split(sizes), strict=True):
                module.weight.data = part

    def __call__(self, x: Tensor) -> Tensor:
        """(N, in) to (N, out of all modules)."""
        if self._is_packed:
            return torch.ops.mkldnn._linear_pointwise(x, self._weight, self._bias, "none", [], "")
        return F.linear(x, self._weight, self._bias)


def _can_pack(weight: Tensor) -> bool:
    return (
        weight.device.type == "cpu"
        and weight.dtype == torch.bfloat16
        and torch.backends.mkldnn.is_available()
        and torch.ops.mkldnn._is_mkldnn_bf16_supported()
    )
