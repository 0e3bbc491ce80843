"""Memory: what the engine keeps, and whether the machine has what all of it needs."""

from __future__ import annotations

from ..models.device import device_memory
from .report import Row, at_most, reported
from .subject import Subject

MIB = 2**20


def check_memory(subject: Subject) -> list[Row]:
    """Last: the peak is that of everything before, which had a second copy of the base model (the
    reference's, the trainer's) beside the engine, as rollout and training side by side have."""
    stats, memory = subject.engine.stats(), device_memory(subject.device)
    files = sum(file.stat().st_size for file in subject.path.glob("*.safetensors"))
    kv = "KV cache"
    return [
        reported("base model's files", files / MIB, "MiB"),
        at_most(kv, stats.kv_bytes / MIB, "MiB", stats.kv_bytes_budget / MIB, "over its budget")
        if stats.kv_bytes_budget
        else reported(kv, stats.kv_bytes / MIB, "MiB"),
        reported("in use", memory.in_use / MIB, "MiB"),
        at_most(
            "peak, with a second copy of the base model",
            memory.peak / MIB,
            "MiB",
            memory.total / MIB,
            "more than there is: the machine swaps, or another process will be killed",
        ),
    ]
