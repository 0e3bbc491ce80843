"""An operator's own environments: the one in the documents is run, those that are none are not."""

from __future__ import annotations

import asyncio
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pytest

from engine.config import parse_config
from engine.environments import (
    ENVIRONMENTS,
    Context,
    SingleTurn,
    add_environments,
    environment_catalogue,
)
from engine.errors import EnvironmentFault, SpecError
from engine.parameters import parameter
from engine.types import Trajectory

from .chats import Letters, answered, said

DOCUMENT = Path(__file__).parents[3] / "docs" / "environments.md"


@pytest.fixture(autouse=True)
def known(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What a test registers goes with it."""
    before = dict(ENVIRONMENTS)
    yield
    ENVIRONMENTS.clear()
    ENVIRONMENTS.update(before)
    sys.modules.pop("guessing", None)


@pytest.fixture
def guessing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The document's example, registered as the document says."""
    text = DOCUMENT.read_text()
    [source] = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    [(name, path)] = re.findall(r"^ENVIRONMENT_CLASSES=(\w+)=(\S+)$", text, re.MULTILINE)
    (tmp_path / f"{path.partition(':')[0]}.py").write_text(source)
    monkeypatch.syspath_prepend(str(tmp_path))
    add_environments({name: path})


def play(guesses: list[str], row: dict[str, Any], **settings: Any) -> tuple[Trajectory, list[Any]]:
    """An episode in which the policy says these; its trajectory and the replies."""
    config = parse_config({"environment": {"type": "guess", **settings}})
    context = Context(chat=Letters(), max_turns=config.max_turns)
    trajectory, replies = None, []
    for guess in guesses:
        trajectory = said(guess, trajectory)
        replies.append(asyncio.run(config.environment.answer(trajectory, row, context)))
        trajectory = answered(trajectory, replies[-1])
    assert trajectory is not None
    return trajectory, replies


@pytest.mark.usefixtures("guessing")
def test_the_documents_example_is_an_environment_of_several_turns() -> None:
    trajectory, replies = play(["50", "Maybe 25?", "hm", "I said 50, now 37"], {"number": "37"})
    assert [reply.observation for reply in replies] == [
        "Too high.",
        "Too low.",
        "Say a number.",
        "right",
    ]
    assert [reply.is_over for reply in replies] == [False, False, False, True]
    assert replies[-1].answer == "37"
    assert len(trajectory.turns) == 4
    assert "user|Too low.\n" in Letters().decode(trajectory.completion_ids)


@pytest.mark.usefixtures("guessing")
def test_the_documents_example_ends_and_fails_as_it_says() -> None:
    _, replies = play(["1", "2"], {"n": 3}, column="n", max_guesses=2)
    assert (replies[1].is_over, replies[1].stop_reason, replies[1].answer) == (True, "guesses", "2")
    with pytest.raises(EnvironmentFault, match="no column number"):
        play(["1"], {})


@pytest.mark.usefixtures("guessing")
def test_tenants_set_its_parameters_within_their_limits() -> None:
    config = parse_config({"environment": {"type": "guess", "max_guesses": 5}})
    assert parse_config(config.to_json()) == config
    [entry] = [one for one in environment_catalogue() if one["type"] == "guess"]
    assert [spec["name"] for spec in entry["parameters"]] == ["column", "max_guesses"]
    with pytest.raises(SpecError) as caught:
        parse_config({"environment": {"type": "guess", "max_guesses": 65}})
    assert caught.value.fields == {"environment.max_guesses": ["Must be at most 64, not 65."]}


@dataclass
class Loose:
    """Not frozen."""

    has_turns: ClassVar[bool] = False


@dataclass(frozen=True)
class Turnless:
    """Says nothing of turns."""


@dataclass(frozen=True)
class Blocking(SingleTurn):
    """Answers in a way that would hold up everybody."""

    def answer(self, *arguments: Any) -> Any:
        return None


@dataclass(frozen=True)
class Mute:
    """Encodes nothing."""

    has_turns: ClassVar[bool] = False


@dataclass(frozen=True)
class Unlimited(SingleTurn):
    """Has a field that says nothing of itself."""

    depth: int = 3


@dataclass(frozen=True)
class Odd(SingleTurn):
    """Has a default that its own limits refuse."""

    depth: int = parameter(3, "how deep", low=4)


HERE = __name__


@pytest.mark.parametrize(
    ("name", "path", "words"),
    [
        ("x", "json", "must be like package.module:Class"),
        ("x", 3, "must be like package.module:Class"),
        ("x", "no_such_module:X", "cannot be imported"),
        ("x", "json:NoSuchClass", "cannot be imported"),
        ("x", "json:loads", "is no dataclass"),
        ("x", f"{HERE}:Loose", "must be frozen"),
        ("x", f"{HERE}:Turnless", "lacks has_turns"),
        ("x", f"{HERE}:Blocking", "lacks async answer"),
        ("x", f"{HERE}:Mute", "lacks encode_prompt"),
        ("x", f"{HERE}:Unlimited", "Unlimited.depth must be made by"),
        ("x", f"{HERE}:Odd", "cannot be written down and read back"),
        ("retry", "engine.environments:SingleTurn", "one of this name already"),
        ("python", "engine.environments:SingleTurn", "one of this name already"),
        ("A b", "engine.environments:SingleTurn", "lower-case letters"),
    ],
)
def test_what_is_no_environment_is_refused_with_the_reason(
    name: str, path: Any, words: str
) -> None:
    before = dict(ENVIRONMENTS)
    with pytest.raises(ValueError, match=re.escape(words)) as caught:
        add_environments({name: path})
    assert str(caught.value).startswith(f"ENVIRONMENT_CLASSES, {name}: ")
    assert before == ENVIRONMENTS


def test_all_are_registered_or_none() -> None:
    before = dict(ENVIRONMENTS)
    with pytest.raises(ValueError, match="is no dataclass"):
        add_environments({"fine": f"{HERE}:Fine", "x": "json:loads"})
    assert before == ENVIRONMENTS
    add_environments({"fine": f"{HERE}:Fine"})
    add_environments({"fine": f"{HERE}:Fine"})  # a second time, as when a process is set up twice
    assert ENVIRONMENTS["fine"] is Fine


@dataclass(frozen=True)
class Fine(SingleTurn):
    """As plain as can be."""
