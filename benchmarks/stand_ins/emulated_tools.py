"""An environment whose tools take the time that an emulation's script says.

The same script that the emulated engine and trainer of the stack play (engine/emulation).
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar

from django.conf import settings

from engine.emulation.script import Script, read_script
from engine.environments import Chat, Context, Reply
from engine.environments.episode import last_answer
from engine.types import ToolCall, Trajectory

ANSWER = "found"


@dataclass(frozen=True)
class EmulatedTools:
    """Calls a tool after every turn that the script has a call for, and ends with the last one."""

    has_turns: ClassVar[bool] = True

    def encode_prompt(self, messages: Sequence[Mapping[str, Any]], chat: Chat) -> list[int]:
        return chat.encode_chat(messages)

    async def answer(self, trajectory: Trajectory, row: dict[str, Any], context: Context) -> Reply:
        seconds = _script().tool_s(trajectory.key, row, len(trajectory.turns) - 1)
        if seconds is None:
            return Reply(is_over=True)
        await asyncio.sleep(seconds)
        last = last_answer(trajectory)[-1]
        ids = context.chat.encode_reply([{"role": "user", "content": ANSWER}], last)
        return Reply(False, ANSWER, tuple(ids), (ToolCall("search", "", ""),))


@lru_cache(maxsize=1)
def _script() -> Script:
    return read_script(settings.EMULATION)
