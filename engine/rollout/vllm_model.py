"""What the vLLM engine must know of a base model, from its files. No torch, no weights."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..models.paths import model_directory, read_json
from ..models.shapes import linear_shapes

BYTES_OF = {"bfloat16": 2, "float16": 2, "float32": 4}


@dataclass(frozen=True)
class ModelShape:
    """See the module."""

    path: str  # local Hugging Face directory
    vocab_size: int
    linear_shapes: Mapping[str, tuple[int, int]]  # (out, in) by PEFT's module name
    kv_bytes_per_token: int  # 0: not known


def read_shape(path: str | os.PathLike[str], dtype: str) -> ModelShape:
    """path: Hugging Face directory or hub id. Raises: ModelError."""
    directory = model_directory(path)
    config = read_json(directory, "config.json")
    return ModelShape(
        path=str(directory),
        vocab_size=int(config.get("vocab_size") or 0),
        linear_shapes=linear_shapes(directory),
        kv_bytes_per_token=_kv_bytes(config, BYTES_OF.get(dtype, 0)),
    )


def _kv_bytes(config: Mapping[str, Any], item: int) -> int:
    """Keys and values of one token in all layers; 0 where the configuration does not say."""
    try:
        heads = config["num_attention_heads"]
        head = config.get("head_dim") or config["hidden_size"] // heads
        kv_heads = config.get("num_key_value_heads") or heads
        return 2 * config["num_hidden_layers"] * kv_heads * head * item
    except (KeyError, TypeError):
        return 0
