"""A wrong answer may be tried again."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, cast

import pytest

from engine.environments import Context, Reply, Retry
from engine.environments.episode import with_turn
from engine.environments.retry import WRONG
from engine.rewards import parse_graders
from engine.types import Generation, Trajectory, TrajectoryKey, pack_ids


class Letters:
    """Stands in for a tokenizer: an id is a character."""

    def decode(self, ids: Sequence[int]) -> str:
        return "".join(map(chr, ids))

    def encode_reply(self, messages: Sequence[Mapping[str, Any]], last_id: int) -> list[int]:
        return [last_id, *map(ord, messages[0]["content"])]


def reply_to(answer: str, *graders: dict[str, Any]) -> Reply:
    ids = tuple(map(ord, answer))
    begun = Trajectory(TrajectoryKey("t", 0, "g", 1, 0), 0, "d", pack_ids([1]), 1)
    trajectory = with_turn(begun, Generation("g:1:0", ids, (-1.0,) * len(ids), "stop", "d"), "r")
    context = Context(cast(Any, Letters()), parse_graders(list(graders)))
    return asyncio.run(Retry().answer(trajectory, {"answer": "12"}, context))


NUMBER = {"type": "numeric", "name": "number", "target": "answer"}
SHORT = {"type": "length", "name": "short", "mode": "limit", "length": 5, "decay": 0}


def test_a_right_answer_ends_the_episode() -> None:
    assert reply_to("12", NUMBER) == Reply(is_over=True, observation="right")


def test_a_wrong_answer_is_told_and_the_message_follows_what_was_generated() -> None:
    reply = reply_to("13", NUMBER)
    assert not reply.is_over
    assert reply.observation == WRONG
    assert reply.observation_ids == (ord("3"), *map(ord, WRONG))


@pytest.mark.parametrize(("weight", "is_over"), [(1.0, False), (0.0, True), (-1.0, True)])
def test_every_reward_function_that_counts_for_an_answer_must_agree(
    weight: float, is_over: bool
) -> None:
    """Nine words where five are the limit: wrong, unless that only is watched or punished."""
    long = "I think that it might well be just 12"
    assert reply_to(long, NUMBER, {**SHORT, "weight": weight}).is_over == is_over


def test_what_cannot_be_judged_is_not_called_wrong() -> None:
    reply = reply_to("12", {**NUMBER, "target": "absent"})
    assert reply.is_over
