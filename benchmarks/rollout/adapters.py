"""Random adapters in PEFT's format, the same files for every engine. No torch."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from engine.adapters.digest import adapter_digest
from engine.adapters.files import lora_names, write_adapter
from engine.models.architectures import LINEAR_MODULES
from engine.models.shapes import linear_shapes
from engine.types import AdapterRef

RANK = 16
SIZE = 0.02  # of the weights: log-probs move by some tenths, text stays text


def make_adapters(
    folder: Path,
    model: str,
    count: int,
    rank: int = RANK,
    targets: tuple[str, ...] = LINEAR_MODULES,
    name: str = "task",
) -> list[AdapterRef]:
    """Write `count` different adapters of random A and B; those that exist are kept."""
    shapes = {
        module: shape
        for module, shape in linear_shapes(model).items()
        if module.rpartition(".")[2] in targets
    }
    return [_adapter(folder / f"{name}{i}", shapes, rank, targets, i) for i in range(count)]


def _adapter(
    path: Path, shapes: dict[str, tuple[int, int]], rank: int, targets: tuple[str, ...], seed: int
) -> AdapterRef:
    digest_file = path / "digest"
    if not digest_file.exists():
        rng = np.random.default_rng(seed)
        tensors: dict[str, np.ndarray] = {}
        for module, (num_out, num_in) in shapes.items():
            name_a, name_b = lora_names(module)
            tensors[name_a] = _uniform(rng, (rank, num_in))
            tensors[name_b] = _uniform(rng, (num_out, rank))
        write_adapter(path, tensors, rank=rank, alpha=2.0 * rank, target_modules=targets)
        digest_file.write_text(adapter_digest(tensors))
    return AdapterRef(path.name, 0, digest_file.read_text(), str(path))


def _uniform(rng: np.random.Generator, shape: tuple[int, int]) -> np.ndarray:
    return (rng.random(shape, dtype=np.float32) * 2 - 1) * np.float32(SIZE)


def adapter_bytes(model: str, rank: int, element_bytes: int) -> int:
    """Computed size of an adapter on all seven projections."""
    return sum(rank * (a + b) for a, b in linear_shapes(model).values()) * element_bytes
