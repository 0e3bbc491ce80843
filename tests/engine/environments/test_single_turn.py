"""A single turn is one generation."""

import asyncio
from typing import Any, cast

from engine.environments import Reply, SingleTurn
from engine.types import Trajectory, TrajectoryKey


def test_the_episode_is_over_after_the_first_generation() -> None:
    key = TrajectoryKey("task", 0, "group", 1, 0)
    trajectory = Trajectory(key, 0, "digest", b"", 0)
    reply = asyncio.run(SingleTurn().answer(trajectory, {}, cast(Any, None)))
    assert reply == Reply(is_over=True, observation="", observation_ids=())
