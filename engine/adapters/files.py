"""Adapters as PEFT writes them: adapter_config.json and adapter_model.safetensors. No torch.

Invariant: what `read_adapter` returns is a well-formed plain LoRA of one rank: float32, finite,
an A and a B for each module, with shapes that fit together. Files come from a store that tenants
can also fill, so nothing in them is believed.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load_file, save

from ..errors import ArtifactError

CONFIG_FILE = "adapter_config.json"
WEIGHTS_FILE = "adapter_model.safetensors"
PREFIX = "base_model.model."
UNSUPPORTED = ("use_dora", "use_rslora", "rank_pattern", "alpha_pattern", "modules_to_save")


@dataclass(frozen=True)
class Adapter:
    """A LoRA adapter in memory."""

    tensors: dict[str, np.ndarray]  # float32 by PEFT's names: A (R, in), B (out, R)
    rank: int
    alpha: float
    target_modules: tuple[str, ...]

    @property
    def scale(self) -> float:
        """What B A x is multiplied with."""
        return self.alpha / self.rank

    @property
    def modules(self) -> list[str]:
        """Names of the layers that have an A and a B, sorted."""
        return sorted({module_of(name) for name in self.tensors})


def lora_names(module: str) -> tuple[str, str]:
    """PEFT's names of A and B of a module such as "model.layers.0.self_attn.q_proj"."""
    return f"{PREFIX}{module}.lora_A.weight", f"{PREFIX}{module}.lora_B.weight"


def module_of(name: str) -> str:
    """The module that a tensor of PEFT's name belongs to. Raises: ValueError."""
    module, separator, _ = name.removeprefix(PREFIX).rpartition(".lora_")
    if not separator or name not in lora_names(module):
        raise ValueError(f"{name} is not the name of a LoRA weight")
    return module


def write_adapter(
    directory: str | os.PathLike[str],
    tensors: Mapping[str, np.ndarray],
    *,
    rank: int,
    alpha: float,
    target_modules: Iterable[str],
    base_model: str = "",
) -> list[Path]:
    """Write both files, synced to disk; returns their paths. Raises: ArtifactError.

    base_model: name for `base_model_name_or_path`, for people and tools.
    """
    config = {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "base_model_name_or_path": base_model,
        "r": rank,
        "lora_alpha": alpha,
        "lora_dropout": 0.0,
        "bias": "none",
        "target_modules": sorted(target_modules),
        "inference_mode": True,
    }
    arrays = {name: np.ascontiguousarray(tensor) for name, tensor in sorted(tensors.items())}
    contents = {
        CONFIG_FILE: json.dumps(config, indent=2).encode(),
        WEIGHTS_FILE: save(arrays, metadata={"format": "pt"}),
    }
    return [write_synced(Path(directory) / name, data) for name, data in contents.items()]


def write_synced(path: Path, data: bytes) -> Path:
    """Write a file and wait until the disk has it. Raises: ArtifactError."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("wb") as stream:
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
    except OSError as error:
        raise ArtifactError(f"{path} could not be written: {error}") from error
    return path


def read_adapter(directory: str | os.PathLike[str]) -> Adapter:
    """Read and check an adapter. Raises: ArtifactError that says which file and what is wrong."""
    folder = Path(directory)
    try:
        config = json.loads((folder / CONFIG_FILE).read_text(encoding="utf-8"))
        tensors = load_file(folder / WEIGHTS_FILE)
    except (OSError, ValueError, SafetensorError) as error:
        raise ArtifactError(f"The adapter in {folder} cannot be read: {error}") from error
    try:
        adapter = _checked_config(config, tensors)
        _check_tensors(adapter)
    except (KeyError, TypeError, ValueError) as error:
        raise ArtifactError(f"The adapter in {folder} is not usable: {error}") from error
    return adapter


def _checked_config(config: Any, tensors: dict[str, np.ndarray]) -> Adapter:
    if not isinstance(config, dict) or config.get("peft_type") != "LORA":
        raise ValueError(f"{CONFIG_FILE} does not describe a LoRA adapter")
    extras = [name for name in UNSUPPORTED if config.get(name)]
    if extras or config.get("bias", "none") != "none":
        raise ValueError(
            f"{CONFIG_FILE} asks for more than plain LoRA: {', '.join(extras) or 'bias'}"
        )
    rank, alpha = int(config["r"]), float(config["lora_alpha"])
    if rank < 1 or not np.isfinite(alpha):
        raise ValueError(f"rank {rank} and alpha {alpha} are out of range")
    return Adapter(tensors, rank, alpha, tuple(config["target_modules"]))


def _check_tensors(adapter: Adapter) -> None:
    for module in adapter.modules:
        a, b = (adapter.tensors.get(name) for name in lora_names(module))
        if a is None or b is None:
            raise ValueError(f"{module} has only one of its two weights")
        if a.ndim != 2 or b.ndim != 2 or a.shape[0] != adapter.rank or b.shape[1] != adapter.rank:
            raise ValueError(
                f"{module} has shapes {a.shape} and {b.shape}, not of rank {adapter.rank}"
            )
        for weight in (a, b):
            if weight.dtype != np.float32 or not np.isfinite(weight).all():
                raise ValueError(f"{module} has weights that are not finite float32 numbers")
