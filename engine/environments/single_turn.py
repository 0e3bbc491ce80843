"""One generation, then the episode is over."""

from __future__ import annotations

from typing import Any

from ..types import Trajectory
from .environment import Reply, Tools


class SingleTurn:
    """Ends every episode after the first turn."""

    has_turns = False

    def answer(self, trajectory: Trajectory, row: dict[str, Any], tools: Tools) -> Reply:
        """Always the end."""
        return Reply(is_over=True)
