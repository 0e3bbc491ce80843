"""A frozen linear layer that one adapter at a time can be hung on, for training.

All tasks share the resident base model; a step hangs its own A and B on the layers and takes them
off again. Without an adapter a layer computes exactly what the base model's did.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn

from ..models.architectures import LINEAR_MODULES
from .files import lora_names


@dataclass(frozen=True)
class Lora:
    """One layer's adapter, in whatever dtype it is stored; applied in the layer's."""

    a: Tensor  # (R, in)
    b: Tensor  # (out, R)
    scale: float


class LoraLinear(nn.Module):
    """y = W x + bias + B A x · scale. Shares W and bias with the layer that it replaces."""

    weight: nn.Parameter
    bias: nn.Parameter | None

    def __init__(self, linear: Any) -> None:
        super().__init__()
        self.weight, self.bias = linear.weight, linear.bias
        self.lora: Lora | None = None

    def forward(self, x: Tensor) -> Tensor:
        y = F.linear(x, self.weight, self.bias)
        if self.lora is None:
            return y
        low = F.linear(x, self.lora.a.to(x.dtype))
        return y + F.linear(low, (self.lora.b * self.lora.scale).to(x.dtype))


def install_lora(model: nn.Module) -> dict[str, LoraLinear]:
    """Replace every layer that can get an adapter; returns them by name. Safe to repeat."""
    layers: dict[str, LoraLinear] = {}
    for name, module in list(model.named_modules()):
        parent, _, leaf = name.rpartition(".")
        if leaf not in LINEAR_MODULES:
            continue
        if not isinstance(module, LoraLinear):
            module = LoraLinear(module)
            setattr(model.get_submodule(parent), leaf, module)
        layers[name] = module
    return layers


@contextmanager
def adapter_applied(
    layers: Mapping[str, LoraLinear], weights: Mapping[str, Tensor], scale: float
) -> Iterator[None]:
    """Hang an adapter's weights, by PEFT's names, on the layers, and take them off at the end."""
    try:
        for name, layer in layers.items():
            name_a, name_b = lora_names(name)
            if name_a in weights:
                layer.lora = Lora(weights[name_a], weights[name_b], scale)
        yield
    finally:
        for layer in layers.values():
            layer.lora = None
