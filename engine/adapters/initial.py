"""Version 0 of a task: the untrained adapter, as PEFT would initialise it. No torch."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

import numpy as np

from .files import lora_names


def initial_adapter(
    shapes: Mapping[str, tuple[int, int]],
    rank: int,
    target_modules: Iterable[str],
    seed: int,
) -> dict[str, np.ndarray]:
    """Random A, zero B: the policy starts as the base model.

    shapes: (out, in) by module name, from engine.models.shapes. Returns float32 tensors by PEFT's
    names: A (rank, in) uniform in ±1/sqrt(in), which is Kaiming's bound at a = sqrt(5); B (out,
    rank). The same seed gives the same bytes on every machine. Raises: ValueError if no layer
    matches. Source: peft.tuners.lora.LoraLayer.reset_lora_parameters.
    """
    wanted = set(target_modules)
    modules = sorted(name for name in shapes if name.rpartition(".")[2] in wanted)
    if not modules:
        raise ValueError(f"the base model has none of the layers {', '.join(sorted(wanted))}")
    random = np.random.Generator(np.random.PCG64(seed))
    tensors: dict[str, np.ndarray] = {}
    for module in modules:
        num_out, num_in = shapes[module]
        name_a, name_b = lora_names(module)
        uniform = random.random((rank, num_in), dtype=np.float32) * 2 - 1
        tensors[name_a] = (uniform / np.float32(math.sqrt(num_in))).astype(np.float32)
        tensors[name_b] = np.zeros((num_out, rank), np.float32)
    return tensors
