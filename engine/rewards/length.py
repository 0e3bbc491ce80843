"""The completion is as long as asked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..parameters import parameter


@dataclass(frozen=True)
class Length:
    """1 at the wanted length, falling in a straight line to 0 at `decay` away from it."""

    name: str
    weight: float = 1.0
    mode: str = parameter(
        "limit",
        "limit: anything up to `length` scores 1; around: only `length` itself does",
        choices=("limit", "around"),
    )
    length: int = parameter(200, "in units", low=0, high=1_000_000)
    decay: int = parameter(100, "units from full score to none; 0: at once", low=0, high=1_000_000)
    unit: str = parameter("characters", "what is counted", choices=("characters", "words"))

    def score(self, completion: str, row: Mapping[str, Any]) -> float:
        """0 … 1."""
        size = len(completion) if self.unit == "characters" else len(completion.split())
        excess = size - self.length
        distance = max(0, excess) if self.mode == "limit" else abs(excess)
        if distance == 0:
            return 1.0
        return max(0.0, 1.0 - distance / self.decay) if self.decay else 0.0
