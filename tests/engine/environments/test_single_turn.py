"""A single turn is one generation."""

from engine.environments import ENVIRONMENTS, Reply
from engine.types import Trajectory, TrajectoryKey


def test_the_episode_is_over_after_the_first_generation() -> None:
    key = TrajectoryKey("task", 0, "group", 1, 0)
    reply = ENVIRONMENTS["single_turn"].answer(Trajectory(key, 0, "digest", b"", 0), {})
    assert reply == Reply(is_over=True, observation="", observation_ids=())
