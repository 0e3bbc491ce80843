"""A formula over other functions' scores, and the counts of tool calls."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from engine.errors import SpecError
from engine.rewards import Grade, Sample, Services, dump_graders, grade, parse_graders
from engine.rewards.workers import Workers

PARTS = {
    "right": {"type": "numeric"},
    "short": {"type": "length", "length": 10, "decay": 10},
    "same": {"type": "math"},
}


def multi(formula: str, parts: Any = PARTS) -> dict[str, Any]:
    return {"type": "multi", "graders": parts, "calculate_output": formula}


def graded(item: dict[str, Any], completion: str, row: dict[str, Any], **episode: int) -> Grade:
    async def run() -> Grade:
        workers = Workers(1)
        services = Services("acme", workers=workers)
        try:
            sample = Sample(completion, row, episode=episode)
            return await grade(parse_graders([item]), sample, services)
        finally:
            await workers.close()

    return asyncio.run(run())


def errors_of(item: dict[str, Any]) -> dict[str, list[str]]:
    with pytest.raises(SpecError) as caught:
        parse_graders([item])
    return caught.value.fields


def test_the_formula_is_over_the_scores_of_the_parts() -> None:
    item = multi("0.5 * right + 0.3 * same + 0.2 * short")
    assert graded(item, "It is 7, I think", {"answer": "7"}).reward == pytest.approx(
        0.5 + 0.3 + 0.08
    )
    assert graded(item, "8", {"answer": "7"}).reward == pytest.approx(0.2)
    assert graded(multi("right * (short >= 0.5)"), "It is 7, I think", {"answer": 7}).reward == 0


def test_a_part_without_a_score_leaves_the_whole_ungraded() -> None:
    result = graded(multi("max(short, right)"), "7", {"answer": "twelve"})
    assert result.reward is None
    assert result.error.startswith("multi: right: invalid_variable_error: column 'answer' holds")


def test_a_formula_without_a_value_leaves_ungraded() -> None:
    result = graded(multi("1 / (right - 1)"), "7", {"answer": "7"})
    assert result.reward is None
    assert result.error == (
        "multi: python_grader_runtime_error: calculate_output: It divides by zero."
    )


def test_everything_is_checked_when_it_is_saved() -> None:
    parts = {"a": {"type": "regex", "pattern": "("}, "b": {"type": "multi"}, "c": {"type": "magic"}}
    errors = errors_of(multi("a + d", parts))
    assert errors["graders.0.graders.a.pattern"] == [
        "Is not a regular expression: missing ) at position 1."
    ]
    assert errors["graders.0.graders.b.type"] == ["A part cannot have parts of its own."]
    assert errors["graders.0.graders.c.type"][0].endswith("not 'magic'.")
    (formula,) = errors["graders.0.calculate_output"]
    assert formula.startswith("formula_parse_error: At character 5: there is no d, only a, b, c")


@pytest.mark.parametrize("name", ["", "a b", "min", "lambda", "1a", "x" * 51, "a.b"])
def test_names_of_parts_are_names_of_formulas(name: str) -> None:
    errors = errors_of(multi("1", {name: {"type": "length"}}))
    assert "is no name for a part" in errors["graders.0.graders"][0]


def test_there_are_one_to_eight_parts() -> None:
    parts = {f"p{n}": {"type": "length"} for n in range(9)}
    assert "1 to 8 parts, not 9" in errors_of(multi("p0", parts))["graders.0.graders"][0]
    assert "1 to 8 parts, not 0" in errors_of(multi("1", {}))["graders.0.graders"][0]
    assert "a" in errors_of(multi("1", {"a": 3}))["graders.0.graders.a"][0]


def test_it_survives_being_stored() -> None:
    graders = parse_graders([multi("right + short + same", json.dumps(PARTS))])
    (stored,) = json.loads(json.dumps(dump_graders(graders)))
    assert stored["graders"] == PARTS
    assert parse_graders([stored]) == graders


@pytest.mark.parametrize(
    ("calls", "errors", "expected"), [(0, 0, 0), (1, 0, 1), (3, 0, 1), (3, 1, 0), (1, 1, 0)]
)
def test_tool_use(calls: int, errors: int, expected: float) -> None:
    counts = {"num_turns": 2, "num_tool_calls": calls, "num_tool_errors": errors}
    assert graded({"type": "tool_use"}, "", {}, **counts).reward == expected


def test_tool_use_where_nobody_counts_is_ungraded() -> None:
    result = graded({"type": "tool_use"}, "", {})
    assert result.reward is None
    assert "choose an environment with tools" in result.error
