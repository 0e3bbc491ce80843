"""Tells the policy that its answer was wrong and lets it try again.

An answer is right when every reward function that counts for it gives its full score, 1. Only the
last answer is rewarded, so what the policy can learn is to use the word that the last one was
wrong.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from ..rewards import Sample, grade
from ..types import Trajectory
from .environment import Chat, Context, Reply
from .episode import last_answer

WRONG = "That answer is not right. Try again."
FULL_SCORE = 1.0


@dataclass(frozen=True)
class Retry:
    """A wrong answer may be tried again, until one is right; the last one counts."""

    has_turns: ClassVar[bool] = True

    def encode_prompt(self, messages: Sequence[Mapping[str, Any]], chat: Chat) -> list[int]:
        """The chat as it is."""
        return chat.encode_chat(messages)

    async def answer(self, trajectory: Trajectory, row: dict[str, Any], context: Context) -> Reply:
        """Over if the answer is right, or cannot be judged."""
        ids = last_answer(trajectory)
        sample = Sample(context.chat.decode(ids), row)
        result = await grade(context.graders, sample, context.services)
        scores = [result.rewards[grader.name] for grader in context.graders if grader.weight > 0]
        if any(score is None for score in scores):
            return Reply(is_over=True, observation="the answer could not be judged")
        if all(score is not None and score >= FULL_SCORE for score in scores):
            return Reply(is_over=True, observation="right")
        again = [{"role": "user", "content": WRONG}]
        observation_ids = context.chat.encode_reply(again, ids[-1] if ids else -1)
        return Reply(is_over=False, observation=WRONG, observation_ids=tuple(observation_ids))
