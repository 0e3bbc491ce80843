"""A trajectory grows by turns and answers; the numbers are worked out by hand."""

from __future__ import annotations

import pytest

from engine.environments import Reply
from engine.environments.episode import (
    last_answer,
    limit_reached,
    tokens_left,
    with_observation,
    with_turn,
)
from engine.prompt_order import turn_seed
from engine.types import Generation, Trajectory, TrajectoryKey, pack_ids, unpack_floats, unpack_ids

KEY = TrajectoryKey("task", 3, "group", 1, 0)
BEGUN = Trajectory(KEY, 3, "d3", pack_ids([5, 6]), prompt_length=2)
FIRST = Generation("g:1:0", (7, 8, 2), (-1.0, -0.5, -0.25), "stop", "d3", 10.0, 11.0)
SECOND = Generation("g:1:0", (9, 2), (-2.0, -3.0), "stop", "d3", 12.0, 13.0)
AGAIN = Reply(is_over=False, observation="Again.", observation_ids=(4, 1))


def two_turns() -> Trajectory:
    return with_turn(with_observation(with_turn(BEGUN, FIRST, "r1"), AGAIN), SECOND, "r2")


def test_turns_and_answers_follow_each_other_token_by_token() -> None:
    made = two_turns()
    assert unpack_ids(made.ids) == [5, 6, 7, 8, 2, 4, 1, 9, 2]
    assert unpack_floats(made.logprobs) == [-1.0, -0.5, -0.25, 0.0, 0.0, -2.0, -3.0]
    assert list(made.mask) == [1, 1, 1, 0, 0, 1, 1]
    assert [(t.start, t.end, t.worker, t.observation) for t in made.turns] == [
        (2, 5, "r1", "Again."),
        (7, 9, "r2", ""),
    ]
    assert (made.num_generated, made.stop_reason, made.version) == (5, "stop", 3)
    assert last_answer(made) == [9, 2]


def test_whatever_stands_after_the_prompt_uses_up_the_tokens_of_a_trajectory() -> None:
    assert tokens_left(BEGUN, 10) == 10
    assert tokens_left(with_observation(with_turn(BEGUN, FIRST, "r"), AGAIN), 10) == 5


@pytest.mark.parametrize(
    ("max_turns", "max_tokens", "reason"),
    [(2, 6, ""), (1, 6, "turns"), (2, 5, "length"), (1, 5, "length")],
)
def test_an_episode_ends_when_no_turn_or_no_token_is_left(
    max_turns: int, max_tokens: int, reason: str
) -> None:
    """Three generated and two of the answer: of six, one is left."""
    made = with_turn(BEGUN, FIRST, "r")
    assert limit_reached(made, AGAIN, max_turns, max_tokens) == reason


def test_a_turn_that_was_cut_off_is_the_last() -> None:
    cut = Generation("g:1:0", (7,), (-1.0,), "length", "d3")
    assert limit_reached(with_turn(BEGUN, cut, "r"), AGAIN, 5, 100) == "length"


def test_each_turn_is_drawn_with_a_seed_of_its_own() -> None:
    seeds = [turn_seed(17, turn) for turn in range(50)]
    assert seeds[0] == 17
    assert len(set(seeds)) == 50
    assert all(0 <= seed < 2**62 for seed in seeds)
    assert seeds[1] != turn_seed(18, 1)
