"""The base model's forward pass over the rows of many sequences: fused weights, a LoRA plan.

Rows are tokens; whose they are is the business of `attend`. The fused weights take the place of the
model's own, so the base model is in memory once. Checked against transformers in the tests.

Between the products everything is float32, whatever the model's dtype: against transformers in
float32 that halves what bfloat16 costs in KL (1.9e-3 to 0.9e-3 nats a token on the demo model) and
takes no more time. Taking off each row's shift before logits are rounded (models/logits.py) halves
the rest.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..adapters.stack import FUSED, LoraPlan
from ..models.architectures import LINEAR_MODULES
from ..models.load import LoadedModel
from ..models.logits import shifted_logits, target_logits
from .projection import Projection

Attend = Callable[[int, Tensor, Tensor], Tensor]
"""(layer, q (N, heads, D), keys and values (N, 2 · kv heads, D)) to (N, heads · D)."""


@dataclass(frozen=True)
class LayerWeights:
    input_norm: nn.Module
    post_norm: nn.Module
    q_norm: nn.Module | None  # Qwen3
    k_norm: nn.Module | None
    fused: dict[str, Projection]  # of each of FUSED


class ModelRunner:
    """One forward pass at a time; keeps no state of sequences. The model cannot be run any more."""

    def __init__(self, base: LoadedModel, max_length: int) -> None:
        """max_length: tokens of the longest sequence; the rotary tables go that far."""
        config = base.config
        self.num_heads = config.num_attention_heads
        self.num_kv_heads = config.num_key_value_heads
        self.head_dim = head_dim_of(config)
        self.vocab_size = config.vocab_size
        self.device, self.dtype = base.device, base.dtype
        self._core, self._head = base.model.model, base.model.lm_head
        self._layers = [_layer_weights(layer) for layer in self._core.layers]
        _let_go_of_the_file(base)
        positions = torch.arange(max_length, device=self.device)[None]
        cos, sin = self._core.rotary_emb(self._head.weight[:1, :1].float(), positions)
        self._cos, self._sin = cos[0], sin[0]

    @property
    def num_layers(self) -> int:
        return len(self._layers)

    def forward(self, ids: Tensor, positions: Tensor, attend: Attend, lora: LoraPlan) -> Tensor:
        """ids, positions: int64 (N). Returns the last hidden state, normed: (N, H)."""
        x = F.embedding(ids, self._core.embed_tokens.weight).float()
        cos, sin = self._cos[positions][:, None], self._sin[positions][:, None]
        for index, layer in enumerate(self._layers):
            h = layer.input_norm(x).to(self.dtype)
            q, kv = self._heads(layer, self._project(index, "qkv", h, lora), cos, sin)
            x = x + self._project(index, "o", attend(index, q, kv), lora)
            h = layer.post_norm(x).to(self.dtype)
            gate, up = self._project(index, "gate_up", h, lora).chunk(2, -1)
            x = x + self._project(index, "down", (F.silu(gate.float()) * up).to(self.dtype), lora)
        return self._core.norm(x).to(self.dtype)

    def logits(self, hidden: Tensor, shifts: Tensor) -> Tensor:
        """(N, H) to (N, V), in the model's dtype, each row less its shift; see shifted_logits."""
        return shifted_logits(hidden, self._head.weight, shifts)

    def target_logits(self, hidden: Tensor, targets: Tensor) -> Tensor:
        """float32 (N): of one token a row."""
        return target_logits(hidden, self._head.weight, targets)

    def _project(self, index: int, fused: str, x: Tensor, lora: LoraPlan) -> Tensor:
        return lora.apply(index, fused, x, self._layers[index].fused[fused](x))

    def _heads(
        self, layer: LayerWeights, qkv: Tensor, cos: Tensor, sin: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Split into heads; queries and keys normed (Qwen3) and rotated."""
        heads = qkv.unflatten(-1, (-1, self.head_dim))
        if layer.q_norm is not None and layer.k_norm is not None:
            q, k, v = heads.split([self.num_heads, self.num_kv_heads, self.num_kv_heads], 1)
            heads = torch.cat((layer.q_norm(q), layer.k_norm(k), v), 1)
        rotating = heads[:, : self.num_heads + self.num_kv_heads]
        rotating.copy_(_rotate(rotating, cos, sin))
        return heads[:, : self.num_heads], heads[:, self.num_heads :]


def head_dim_of(config: Any) -> int:
    """config: transformers' own, which does not always name it."""
    return getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads


def linear_shapes_of(base: LoadedModel) -> dict[str, tuple[int, int]]:
    """(out, in) of every layer that can get an adapter, by PEFT's module name."""
    return {
        name: (module.weight.shape[0], module.weight.shape[1])
        for name, module in base.model.named_modules()
        if name.rpartition(".")[2] in LINEAR_MODULES
    }


def _rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotary embedding. x: (N, heads, D); cos, sin: (N, 1, D)."""
    first, second = x.chunk(2, -1)
    return x * cos + torch.cat((-second, first), -1) * sin


def _let_go_of_the_file(base: LoadedModel) -> None:
    """Copy what is left: one view of the mapped file would keep all of it resident."""
    if base.device.type == "cpu":
        for parameter in base.model.parameters():
            parameter.data = parameter.data.clone()


def _layer_weights(layer: Any) -> LayerWeights:
    fused = {
        name: Projection([layer.get_submodule(module) for module in modules])
        for name, modules in FUSED.items()
    }
    attention = layer.self_attn
    return LayerWeights(
        layer.input_layernorm,
        layer.post_attention_layernorm,
        getattr(attention, "q_norm", None),
        getattr(attention, "k_norm", None),
        fused,
    )
