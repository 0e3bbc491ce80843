"""The checks of the self-test, in their order."""

from __future__ import annotations

from collections.abc import Callable

from .adapters import check_adapters
from .generation import check_generation
from .memory import check_memory
from .parity import check_parity
from .report import Row
from .subject import Subject
from .training import check_training

CHECKS: dict[str, Callable[[Subject], list[Row]]] = {
    "generation": check_generation,
    "adapters": check_adapters,
    "log-probs": check_parity,
    "training": check_training,
    "memory": check_memory,
}
