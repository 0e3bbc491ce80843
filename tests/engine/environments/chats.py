"""Stand-ins for what environments are given."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from engine.environments import Reply
from engine.environments.episode import told, with_observation, with_turn
from engine.types import Generation, Trajectory, TrajectoryKey, pack_ids


class Letters:
    """A tokenizer whose ids are characters, and a chat template that puts a role before each."""

    tool_format = "plain"

    def decode(self, ids: Sequence[int]) -> str:
        return "".join(map(chr, ids))

    def cut(self, text: str, max_tokens: int) -> str:
        return text if len(text) <= max_tokens else text[:max_tokens] + "…"

    def encode_chat(
        self, messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]] = ()
    ) -> list[int]:
        return list(map(ord, "".join(f"{m['role']}|{m['content']}\n" for m in messages)))

    def encode_reply(self, messages: Sequence[Mapping[str, Any]], last_id: int) -> list[int]:
        return [ord("\n"), *self.encode_chat(messages)]


def begun() -> Trajectory:
    """A trajectory that is its prompt."""
    return Trajectory(TrajectoryKey("t", 0, "g", 1, 0), 0, "d", pack_ids([1]), 1)


def said(
    text: str, trajectory: Trajectory | None = None, finish_reason: str = "stop"
) -> Trajectory:
    """The trajectory with one more turn of this text."""
    ids = tuple(map(ord, text))
    generation = Generation("g:1:0", ids, (-1.0,) * len(ids), finish_reason, "d")
    return with_turn(trajectory or begun(), generation, "r")


def answered(trajectory: Trajectory, reply: Reply) -> Trajectory:
    """The trajectory with an answer to its last turn."""
    if reply.is_over:
        return replace(told(trajectory, reply), stop_reason=reply.stop_reason or "stop")
    return with_observation(trajectory, reply)
