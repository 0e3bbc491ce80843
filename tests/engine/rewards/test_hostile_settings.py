"""Settings that no honest person writes are refused in words, and scores stay finite."""

from __future__ import annotations

from typing import Any

import pytest

from engine.environments import parse_environment
from engine.errors import SpecError
from engine.rewards import grade_purely, parse_graders

from .test_grading import Broken


@pytest.mark.parametrize("score", [1e308, -1e300, 1_000_001, float("inf"), float("nan")])
def test_a_score_that_would_overflow_is_none(score: float) -> None:
    result = grade_purely([Broken(score, weight=1000.0)], "x", {})
    assert result.reward is None
    assert "from -1,000,000 to 1,000,000" in result.error


@pytest.mark.parametrize(
    "version",
    ["http://[", {"a": 1}, [], 5, None, "http://json-schema.org/draft-04/schema#", "#", ""],
)
def test_a_schema_of_an_unknown_kind_is_refused(version: Any) -> None:
    schema = {"$schema": version, "type": "object"}
    part = {"type": "json_schema", "schema": schema}
    with pytest.raises(SpecError, match=r"has a \$schema that is not known|Has a \$schema"):
        parse_graders([part])
    with pytest.raises(SpecError, match=r"Has a \$schema"):
        parse_graders([{"type": "multi", "graders": {"a": part}, "calculate_output": "a"}])


def test_a_schema_of_a_known_kind_is_taken() -> None:
    schema = {"$schema": "http://json-schema.org/draft-07/schema#", "required": ["a"]}
    assert parse_graders([{"type": "json_schema", "schema": schema}])


@pytest.mark.parametrize(
    "schema",
    [
        '{"type": "object", "properties": {"a": {}}, "required": [[1]]}',
        '{"type": "object", "properties": {"a": {}}, "required": [{}]}',
        '{"a": {"default": NaN}}',
        '{"a": {"default": 1e999}}',
        '{"a": {"description": "\\ud800"}}',
        '{"a": {"description": "\\u0000"}}',
        '{"\\ud800": {}}',
        '{"a": ' * 300 + "{}" + "}" * 300,
        '{"a": {}, "a": {}}',
        "[" * 90_000,
    ],
)
@pytest.mark.parametrize("kind", ["http", "mcp"])
def test_a_tools_schema_is_read_as_strictly_as_all_json(schema: str, kind: str) -> None:
    tool = {"type": kind, "url": "https://a.example/", "tool": "t", "description": "d"}
    tool = {key: value for key, value in tool.items() if kind == "mcp" or key != "tool"}
    with pytest.raises(SpecError) as caught:
        parse_environment({**tool, "schema": schema})
    assert "environment.tools.0.schema" in caught.value.fields


@pytest.mark.parametrize(
    "text", ['{"type": "retry", "\\ud800": 1}', '{"type": NaN}', '{"type": ' + '{"a":' * 50]
)
def test_an_environment_as_text_is_read_as_strictly(text: str) -> None:
    with pytest.raises(SpecError) as caught:
        parse_environment(text)
    str(caught.value).encode()


def test_a_judges_address_ends_where_the_call_goes_on() -> None:
    judge = {"type": "score_model", "model": "m"}
    for end in ("?a=b", "#a"):
        with pytest.raises(SpecError, match=r"after \? or #|after #"):
            parse_graders([{**judge, "url": f"https://a.example/v1{end}"}])
