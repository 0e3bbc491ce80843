"""An environment's dataset becomes a file that can be uploaded."""

from __future__ import annotations

import importlib.util
import io
import json
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from jobs.services.datasets import import_dataset

STAND_IN = Path(__file__).parents[2] / "engine" / "environments" / "verifiers_stand_in"


@pytest.fixture(autouse=True)
def installed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The game, and the library or its stand-in."""
    if importlib.util.find_spec("verifiers") is None:
        monkeypatch.syspath_prepend(str(STAND_IN))
        return
    (tmp_path / "guessing_games.py").write_text((STAND_IN / "guessing_games.py").read_text())
    monkeypatch.syspath_prepend(str(tmp_path))


def written(*arguments: str) -> list[dict[str, Any]]:
    output = io.StringIO()
    call_command("verifiers_dataset", *arguments, stdout=output)
    return [json.loads(line) for line in output.getvalue().splitlines()]


@pytest.mark.django_db
def test_its_rows_can_be_uploaded(acme: Any, alice: Any) -> None:
    rows = written("guessing-games", "--args", '{"max_turns": 3}')
    assert rows[1] == {
        "messages": [{"role": "user", "content": "Guess a number up to 7."}],
        "answer": "7",
        "example_id": 1,
    }
    file = io.BytesIO("\n".join(map(json.dumps, rows)).encode())
    dataset = import_dataset(tenant=acme, user=alice, name="guessing", file=file)
    assert (dataset.num_rows, {"messages", "answer"} <= set(dataset.columns)) == (2, True)
    assert len(written("guessing-games", "--max-rows", "1")) == 1


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("no-such-games",), "does not load"),
        (("guessing-games", "--args", "[1]"), "must be a JSON object"),
        (("guessing-games", "--args", "{"), "must be a JSON object"),
    ],
)
def test_what_cannot_be_written_says_why(arguments: tuple[str, ...], words: str) -> None:
    with pytest.raises(CommandError, match=words):
        written(*arguments)
