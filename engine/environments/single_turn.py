"""One generation, then the episode is over."""

from __future__ import annotations

from typing import Any

from ..types import Trajectory
from .environment import Context, Reply


class SingleTurn:
    """Ends every episode after the first turn."""

    has_turns = False

    async def answer(self, trajectory: Trajectory, row: dict[str, Any], context: Context) -> Reply:
        """Always the end."""
        return Reply(is_over=True)
