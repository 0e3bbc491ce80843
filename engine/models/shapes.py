"""Shapes of a base model's linear layers, from the safetensors headers. No torch, no weights."""

from __future__ import annotations

import json
import os
import struct
from pathlib import Path
from typing import Any

from ..errors import ModelError
from .architectures import LINEAR_MODULES, require_trainable
from .paths import model_directory, read_json

MAX_HEADER_BYTES = 100_000_000  # the limit that the safetensors library sets itself


def linear_shapes(path: str | os.PathLike[str]) -> dict[str, tuple[int, int]]:
    """(out, in) of every layer that can get an adapter, by PEFT's module name, in file order.

    Names are like "model.layers.0.self_attn.q_proj". Raises: ModelError.
    """
    directory = model_directory(path)
    require_trainable(read_json(directory, "config.json"))
    shapes: dict[str, tuple[int, int]] = {}
    for file in _weight_files(directory):
        for name, entry in _header(file).items():
            module = name.removesuffix(".weight")
            if name.endswith(".weight") and module.rpartition(".")[2] in LINEAR_MODULES:
                rows, columns = entry["shape"]
                shapes[module] = (rows, columns)
    if not shapes:
        raise ModelError(f"{directory} holds no linear layers named {', '.join(LINEAR_MODULES)}.")
    return shapes


def _weight_files(directory: Path) -> list[Path]:
    """One file, or the shards that the index names."""
    index = read_json(directory, "model.safetensors.index.json")
    names = sorted(set(index.get("weight_map", {}).values())) or ["model.safetensors"]
    missing = [name for name in names if not (directory / name).is_file()]
    if missing:
        raise ModelError(
            f"{directory} lacks {', '.join(missing)}: give a model with safetensors files."
        )
    return [directory / name for name in names]


def _header(file: Path) -> dict[str, Any]:
    """Format: 8 bytes little-endian length, then that many bytes of JSON."""
    try:
        with file.open("rb") as stream:
            (length,) = struct.unpack("<Q", stream.read(8))
            if length > MAX_HEADER_BYTES:
                raise ValueError(f"its header claims {length} bytes")
            header = json.loads(stream.read(length))
    except (OSError, ValueError, struct.error) as error:
        raise ModelError(f"{file} is not a readable safetensors file: {error}") from error
    header.pop("__metadata__", None)
    return header
