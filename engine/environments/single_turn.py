"""One generation, then the episode is over."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from ..types import Trajectory
from .environment import Chat, Context, Reply


@dataclass(frozen=True)
class SingleTurn:
    """One answer, then the episode is over."""

    has_turns: ClassVar[bool] = False

    def encode_prompt(self, messages: Sequence[Mapping[str, Any]], chat: Chat) -> list[int]:
        """The chat as it is."""
        return chat.encode_chat(messages)

    async def answer(self, trajectory: Trajectory, row: dict[str, Any], context: Context) -> Reply:
        """Always the end."""
        return Reply(is_over=True)
