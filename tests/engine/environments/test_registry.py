"""A person's words become an environment, or every fault is told by its path."""

from __future__ import annotations

import json
from typing import Any

import pytest

from engine.config import parse_config
from engine.environments import (
    ToolUse,
    dump_environment,
    environment_catalogue,
    parse_environment,
    tool_catalogue,
)
from engine.environments.search import Search
from engine.errors import SpecError

SEARCH = {"type": "search", "corpus": "c", "num_results": 3, "max_tool_calls": 4}


@pytest.mark.parametrize(
    "item",
    [
        "single_turn",
        "retry",
        "calculator",
        {"type": "retry"},
        SEARCH,
        json.dumps(SEARCH),
        {"type": "tools", "tools": ["calculator", SEARCH | {"name": "find"}], "format": "plain"},
    ],
)
def test_an_environment_survives_being_written_down(item: Any) -> None:
    if isinstance(item, dict) and "tools" in item:
        item["tools"][1].pop("max_tool_calls", None)
    environment = parse_environment(item)
    dumped = json.loads(json.dumps(dump_environment(environment)))
    assert parse_environment(dumped) == environment
    config = parse_config({"environment": item, "max_completion_length": 512})
    assert config.environment == environment
    assert parse_config(json.loads(json.dumps(config.to_json()))) == config


def test_a_tools_name_stands_for_an_environment_with_that_tool() -> None:
    environment = parse_environment(SEARCH)
    assert isinstance(environment, ToolUse)
    assert environment.tools == (Search(corpus="c", num_results=3),)
    assert environment.max_tool_calls == 4


@pytest.mark.parametrize(
    ("item", "path", "words"),
    [
        (3, "environment", "an object such as"),
        ("serch", "environment.type", "Must be one of single_turn"),
        ("{", "environment", "Is not JSON"),
        ("{" * 90_000, "environment", "Is not JSON"),
        ({"type": ["retry"]}, "environment.type", "not a list"),
        ({"type": "retry", "tools": ["search"]}, "environment.tools", "uses no tools"),
        ({"type": "retry", "turns": 3}, "environment.turns", "no environment setting 'turns'"),
        ({"type": "tools"}, "environment.tools", "Must be a list"),
        ({"type": "tools", "tools": "search"}, "environment.tools", "Must be a list"),
        ({"type": "tools", "tools": [3]}, "environment.tools.0", "an object such as"),
        ({"type": "tools", "tools": ["rm"]}, "environment.tools.0.type", "calculator"),
        ({"type": "tools", "tools": ["calculator"] * 2}, "environment.tools.1.name", "Another one"),
        ({"type": "tools", "tools": ["calculator"] * 17}, "environment.tools", "At most 16"),
        ({"type": "search", "name": "a b"}, "environment.tools.0.name", "letters, digits"),
        ({"type": "search", "name": ""}, "environment.tools.0.name", "letters, digits"),
        ({"type": "search", "limit": 1}, "environment.tools.0.limit", "no parameter of search"),
        ({"type": "search"}, "environment.tools.0.corpus", "Choose a corpus, or give a site"),
        (
            {"type": "search", "corpus": "c", "api_url": "https://x.example/api.php"},
            "environment.tools.0.api_url",
            "not both",
        ),
        ({"type": "search", "num_results": 0}, "environment.tools.0.num_results", "at least 1"),
        ({"type": "search", "tool_timeout_s": 0}, "environment.tool_timeout_s", "above 0"),
    ],
)
def test_what_is_wrong_is_told_by_its_path(item: Any, path: str, words: str) -> None:
    with pytest.raises(SpecError) as caught:
        parse_environment(item)
    assert words in caught.value.fields[path][0]
    with pytest.raises(SpecError) as caught:
        parse_config({"environment": item, "max_turns": 0})
    assert words in caught.value.fields[path][0]
    assert "max_turns" in caught.value.fields


def test_the_catalogues_are_plain_values() -> None:
    found = json.loads(json.dumps([environment_catalogue(), tool_catalogue()]))
    assert [entry["type"] for entry in found[0]] == ["single_turn", "retry", "tools"]
    assert "format" in {spec["name"] for spec in found[0][2]["parameters"]}
    assert "corpus" in {spec["name"] for spec in found[1][2]["parameters"]}


def test_a_completion_must_have_room_for_what_a_tool_says() -> None:
    with pytest.raises(SpecError) as caught:
        parse_config({"environment": "calculator"})
    assert "to 512 or more" in caught.value.fields["max_completion_length"][0]
    parse_config({"environment": "calculator", "max_completion_length": 257})
    parse_config({"environment": {"type": "calculator", "max_observation_length": 32}})
