"""Environments of verifiers drive our turns: the library's loop, or a stand-in with its names."""

from __future__ import annotations

import asyncio
import importlib.util
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from engine.config import parse_config
from engine.environments import ENVIRONMENTS, Context, verifiers_bridge, verifiers_episodes
from engine.environments.verifiers_bridge import allow_verifiers
from engine.errors import EnvironmentFault, SpecError
from engine.types import Trajectory

from .chats import Letters, answered, said

HERE = Path(__file__).parent / "verifiers_stand_in"
ROW = {"messages": [{"role": "user", "content": "Guess."}], "answer": "7", "example_id": 1}


@pytest.fixture(autouse=True)
def installed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """The game, and the library or its stand-in; what the bridge keeps is a test's own."""
    before = dict(ENVIRONMENTS)
    if importlib.util.find_spec("verifiers") is None:
        monkeypatch.syspath_prepend(str(HERE))
    else:
        (tmp_path / "guessing_games.py").write_text((HERE / "guessing_games.py").read_text())
        monkeypatch.syspath_prepend(str(tmp_path))
    allow_verifiers({"guessing-games": ["manner", "max_turns"], "other": []})
    yield
    ENVIRONMENTS.clear()
    ENVIRONMENTS.update(before)
    verifiers_bridge._episodes.cache_clear()


def environment(**args: Any) -> Any:
    spec = {"type": "verifiers", "id": "guessing-games", "args": args}
    return parse_config({"environment": spec}).environment


def reply_to(trajectory: Trajectory, **args: Any) -> Any:
    return asyncio.run(environment(**args).answer(trajectory, ROW, Context(chat=Letters())))


def play(*texts: str, **args: Any) -> tuple[Trajectory, list[Any]]:
    trajectory, replies = None, []
    for text in texts:
        trajectory = said(text, trajectory)
        replies.append(reply_to(trajectory, **args))
        trajectory = answered(trajectory, replies[-1])
    assert trajectory is not None
    return trajectory, replies


def score(trajectory: Trajectory, **args: Any) -> float:
    return asyncio.run(environment(**args).finish(trajectory))  # type: ignore[no-any-return]


def numbered(trajectory: Trajectory, index: int) -> Trajectory:
    """The same of another trajectory of the group."""
    return replace(trajectory, key=replace(trajectory.key, index=index))


def num_kept() -> int:
    return len(verifiers_bridge._episodes())


def test_the_librarys_environment_answers_turns_and_its_rubric_scores_them() -> None:
    trajectory, replies = play("1", "2", "7")
    assert [reply.observation for reply in replies] == ["No. Tries: 1", "No. Tries: 2", ""]
    assert [reply.is_over for reply in replies] == [False, False, True]
    assert Letters().decode(replies[0].observation_ids) == "\nuser|No. Tries: 1\n"
    assert num_kept() == 1
    assert score(trajectory) == 1.0 + 0.5 / 3
    assert num_kept() == 0


def test_an_episode_that_our_limits_end_is_scored_as_it_stands() -> None:
    trajectory, replies = play("1", "2")
    assert not replies[-1].is_over
    assert score(trajectory) == 0.5 / 3
    assert num_kept() == 0


def test_the_librarys_own_limit_ends_an_episode() -> None:
    trajectory, replies = play("1", "2", max_turns=2)
    assert [reply.is_over for reply in replies] == [False, True]
    assert score(trajectory, max_turns=2) == 0.5 / 2


def test_another_worker_plays_the_turns_again() -> None:
    trajectory, _ = play("1", "2")
    verifiers_bridge._episodes.cache_clear()  # as in a process that knows nothing of it
    reply = reply_to(said("7", trajectory))
    assert reply.is_over
    assert score(answered(said("7", trajectory), reply)) == 1.0 + 0.5 / 3


def test_a_turn_that_is_answered_twice_is_played_again() -> None:
    trajectory, _ = play("1")
    again = said("2", trajectory)
    assert reply_to(again) == reply_to(again)
    assert num_kept() == 1


def test_one_that_answers_otherwise_when_it_is_played_again_is_not_gone_on_with() -> None:
    trajectory, _ = play("1", manner="moody")
    verifiers_bridge._episodes.cache_clear()
    with pytest.raises(EnvironmentFault, match="answers its turns otherwise"):
        reply_to(said("2", trajectory), manner="moody")
    assert num_kept() == 0


def test_states_are_bounded_and_those_that_went_are_played_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(verifiers_episodes, "MAX_EPISODES", 1)
    first, _ = play("1")
    reply_to(numbered(said("3"), 1))
    assert num_kept() == 1
    assert reply_to(said("2", first)).observation == "No. Tries: 2"


def test_episodes_do_not_meet() -> None:
    async def story() -> list[Any]:
        game, context = environment(), Context(chat=Letters())
        turns = [numbered(said(text), place) for place, text in enumerate(("1", "7", "3"))]
        return await asyncio.gather(*(game.answer(turn, ROW, context) for turn in turns))

    assert [reply.is_over for reply in asyncio.run(story())] == [False, True, False]
    assert num_kept() == 3


@pytest.mark.parametrize(
    ("manner", "words"),
    [
        ("broken", "failed: RuntimeError: no such game"),
        ("absent", "does not load: .*no game there"),
        ("rewriting", "rewrote the conversation"),
    ],
)
def test_what_goes_wrong_in_it_costs_its_trajectory_alone(manner: str, words: str) -> None:
    with pytest.raises(EnvironmentFault, match=words):
        play("1", "2", manner=manner)
    assert num_kept() == 0
    assert play("7")[1][0].is_over


def test_a_reward_function_that_fails_is_no_reward_of_0() -> None:
    trajectory, _ = play("7", manner="ill")
    with pytest.raises(EnvironmentFault, match="the judge is ill"):
        score(trajectory, manner="ill")


def test_a_score_without_its_state_is_none() -> None:
    trajectory, _ = play("7")
    verifiers_bridge._episodes.cache_clear()
    with pytest.raises(EnvironmentFault, match="lost before it was scored"):
        score(trajectory)


def test_an_environment_that_hangs_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verifiers_bridge, "STEP_S", 0.2)

    async def hang(*arguments: Any) -> None:
        await asyncio.sleep(3600)

    monkeypatch.setattr(verifiers_bridge.verifiers_library, "rollout", hang)
    with pytest.raises(EnvironmentFault, match=r"longer than 0\.2 s"):
        reply_to(said("1"))
    assert num_kept() == 0


@pytest.mark.parametrize(
    ("spec", "errors"),
    [
        ({"id": "secret-games"}, {"environment.id": "Must be one of guessing-games, other"}),
        ({"id": "other", "args": {"x": 1}}, {"environment.args": "other has no argument 'x'"}),
        ({"args": {"path": "/"}}, {"environment.args": "there are manner, max_turns"}),
        ({"args": "[]"}, {"environment.args": "Must be"}),
        ({"tools": ["search"]}, {"environment.tools": "uses no tools"}),
    ],
)
def test_tenants_choose_what_the_operator_leaves_open(
    spec: dict[str, Any], errors: dict[str, str]
) -> None:
    with pytest.raises(SpecError) as caught:
        parse_config({"environment": {"type": "verifiers", **spec}})
    assert {path: text[0] for path, text in caught.value.fields.items()}.keys() == errors.keys()
    assert all(words in caught.value.fields[path][0] for path, words in errors.items())


def test_a_choice_survives_being_written_down() -> None:
    config = parse_config(
        {"environment": {"type": "verifiers", "id": "guessing-games", "args": {"max_turns": 3}}}
    )
    assert parse_config(config.to_json()) == config


def test_without_names_there_is_no_such_environment() -> None:
    allow_verifiers([])
    with pytest.raises(SpecError):
        parse_config({"environment": "verifiers"})
    for wrong in ("wordle", [3], {"wordle": "x"}, {"": []}, 3):
        with pytest.raises(ValueError, match="VERIFIERS_ENVIRONMENTS"):
            allow_verifiers(wrong)
