"""A single turn is one generation."""

import asyncio
from typing import Any, cast

from engine.config import FIELDS
from engine.environments import ENVIRONMENTS, Reply
from engine.types import Trajectory, TrajectoryKey


def test_the_episode_is_over_after_the_first_generation() -> None:
    key = TrajectoryKey("task", 0, "group", 1, 0)
    trajectory = Trajectory(key, 0, "digest", b"", 0)
    reply = asyncio.run(ENVIRONMENTS["single_turn"].answer(trajectory, {}, cast(Any, None)))
    assert reply == Reply(is_over=True, observation="", observation_ids=())


def test_a_tasks_settings_name_every_environment() -> None:
    assert FIELDS["environment"].metadata["choices"] == tuple(ENVIRONMENTS)
