"""The episode called tools, and called them well."""

from __future__ import annotations

from dataclasses import dataclass

from ..errors import GraderError
from .services import Sample, Services


@dataclass(frozen=True)
class ToolUse:
    """1 if the episode made at least one valid tool call and no invalid one, else 0."""

    name: str
    weight: float = 1.0

    async def score_with(self, sample: Sample, services: Services) -> float:
        """0 or 1. Raises: GraderError where nobody counted calls."""
        if "num_tool_calls" not in sample.episode:
            raise GraderError(
                "invalid_variable_error: the episode has no count of tool calls; choose an"
                " environment with tools"
            )
        num_errors = sample.episode.get("num_tool_errors", 0)
        return float(sample.episode["num_tool_calls"] > 0 and not num_errors)
