"""One generation, then the episode is over."""

from __future__ import annotations

from typing import Any

from ..types import Trajectory
from .environment import Reply


class SingleTurn:
    """Ends every episode after the first turn."""

    def answer(self, trajectory: Trajectory, row: dict[str, Any]) -> Reply:
        """Always the end."""
        return Reply(is_over=True)
