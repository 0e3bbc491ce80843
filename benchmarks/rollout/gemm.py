"""The bound: how long the linear layers of one decode step take with nothing around them.

Each layer has weights of its own, so that they come from memory as in the model. Of every way that
torch offers, and of our own products, the fastest counts, shape by shape.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from engine.native.build import native
from engine.rollout.projection import Projection
from engine.rollout.runner import head_dim_of

from . import ours

READ_BYTES = 512 << 20
PASSES = 5  # over all layers; the fastest counts: a bound must not hold anybody's pause


@torch.inference_mode()
def bound(batch: int) -> dict[str, Any]:
    """Seconds of a step's products for `batch` rows, and by which way each shape was fastest."""
    base = ours.loaded()
    config = base.config
    head_dim = head_dim_of(config)
    heads, kv_heads = config.num_attention_heads, config.num_key_value_heads
    hidden, inner = config.hidden_size, config.intermediate_size
    layers = config.num_hidden_layers
    shapes = {
        "qkv": ((heads + 2 * kv_heads) * head_dim, hidden, layers),
        "o": (hidden, heads * head_dim, layers),
        "gate_up": (2 * inner, hidden, layers),
        "down": (hidden, inner, layers),
        "head": (config.vocab_size, hidden, 1),
    }
    total, ways = 0.0, {}
    for name, (rows, columns, count) in shapes.items():
        times = _times(batch, rows, columns, count, base.dtype)
        ways[name] = min(times, key=lambda way: times[way])
        total += times[ways[name]]
    return {"seconds": total, "ways": ways}


def bandwidth() -> float:
    """Bytes per second that all threads together read from memory, at best."""
    numbers = torch.ones(READ_BYTES // 8, dtype=torch.int64)
    return READ_BYTES / min(_pass([numbers.sum]) for _ in range(PASSES))


def _times(batch: int, rows: int, columns: int, count: int, dtype: torch.dtype) -> dict[str, float]:
    """Seconds of `count` products of (batch, columns) with different (rows, columns) weights."""
    weights = [torch.randn(rows, columns).to(dtype) * 0.02 for _ in range(count)]
    x = torch.randn(batch, columns).to(dtype)
    ways: dict[str, list[Callable[[], Tensor]]] = {
        "linear": [lambda w=w: F.linear(x, w) for w in weights],
        "matmul": [lambda w=w: x @ w for w in (w.t().contiguous() for w in weights)],
    }
    for name, calls in (("prepacked", _packed(x, weights)), ("ours", _ours(x, weights))):
        if calls:
            ways[name] = calls
    return {name: min(_pass(calls) for _ in range(PASSES)) for name, calls in ways.items()}


def _packed(x: Tensor, weights: list[Tensor]) -> list[Callable[[], Tensor]]:
    """oneDNN's own layout of the weights, where this build has it for this dtype."""
    try:
        packed = [torch.ops.mkldnn._reorder_linear_weight(w, None) for w in weights]
        calls = [
            lambda w=w: torch.ops.mkldnn._linear_pointwise(x, w, None, "none", [], "")
            for w in packed
        ]
        calls[0]()
    except (RuntimeError, AttributeError):
        return []
    return calls


def _ours(x: Tensor, weights: list[Tensor]) -> list[Callable[[], Tensor]]:
    """As the engine multiplies, where that is not by one of the other ways."""
    if x.dtype != torch.bfloat16 or native().products != "vectors":
        return []
    modules = [
        SimpleNamespace(weight=nn.Parameter(w, requires_grad=False), bias=None) for w in weights
    ]
    return [partial(Projection([module]), x) for module in modules]


def _pass(calls: list[Callable[[], Tensor]]) -> float:
    start = time.perf_counter()
    for call in calls:
        call()
    return time.perf_counter() - start
