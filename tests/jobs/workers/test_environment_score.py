"""The score that an environment gives by itself reaches the reward function of that name."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

import pytest

from engine.environments import Context, Reply, SingleTurn
from engine.errors import EnvironmentFault
from engine.rewards import parse_graders
from engine.types import Trajectory
from jobs.workers.episodes import answer
from tests.engine.environments.chats import Letters, said


@dataclass(frozen=True)
class Scoring(SingleTurn):
    """Scores an episode by its length in turns; or fails to."""

    is_over: bool = True
    is_failing: bool = False

    async def answer(self, trajectory: Trajectory, row: dict[str, Any], context: Context) -> Reply:
        return Reply(is_over=self.is_over, observation_ids=(1, 2))

    async def finish(self, trajectory: Trajectory) -> float:
        if self.is_failing:
            raise EnvironmentFault("nobody saw it")
        return 0.25 * len(trajectory.turns)


def over(environment: Any, max_turns: int = 5) -> Trajectory:
    graders = parse_graders([{"type": "environment", "weight": 2}])
    message = {"row": {}, "max_turns": max_turns, "max_new_tokens": 100}
    context = Context(Letters(), graders)
    trajectory, is_over = asyncio.run(answer(said("hi"), message, environment, context))
    assert is_over
    return trajectory


def test_the_environments_score_is_a_reward() -> None:
    assert (over(Scoring()).reward, over(Scoring()).rewards) == (0.5, {"environment": 0.25})


def test_an_episode_that_a_limit_ends_is_scored_too() -> None:
    trajectory = over(Scoring(is_over=False), max_turns=1)
    assert (trajectory.stop_reason, trajectory.reward) == ("turns", 0.5)


@pytest.mark.parametrize(
    ("environment", "words"),
    [
        (Scoring(is_failing=True), "nobody saw it"),
        (SingleTurn(), "gives no score of its own"),
    ],
)
def test_without_a_score_there_is_no_reward_and_a_reason(environment: Any, words: str) -> None:
    trajectory = over(environment)
    assert trajectory.reward is None
    assert words in trajectory.error
