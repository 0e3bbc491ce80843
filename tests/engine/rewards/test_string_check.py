"""Text is compared with one or several accepted answers."""

from __future__ import annotations

from typing import Any

import pytest

from engine.errors import GraderError
from engine.rewards import parse_graders


def score(completion: str, answer: Any, **options: Any) -> float:
    (grader,) = parse_graders([{"type": "string_check", **options}])
    return grader.score(completion, {"answer": answer})  # type: ignore[attr-defined, no-any-return]


@pytest.mark.parametrize(
    ("completion", "answer", "options", "expected"),
    [
        (" Paris\n", "Paris", {}, 1),
        (" Paris\n", "Paris", {"strip": False}, 0),
        ("paris", "Paris", {}, 0),
        ("STRASSE", "Straße", {"ignore_case": True}, 1),
        ("cafe\u0301", "caf\u00e9", {}, 1),
        ("New\u00a0York", "New York", {}, 1),
        ("48", 48, {}, 1),
        ("Paris.", "Paris", {}, 0),
        ("Paris", "Paris", {"operation": "ne"}, 0),
        ("Rome", "Paris", {"operation": "ne"}, 1),
        ("It is Paris.", "Paris", {"operation": "like"}, 1),
        ("It is paris.", "Paris", {"operation": "like"}, 0),
        ("It is paris.", "Paris", {"operation": "like", "ignore_case": True}, 1),
        ("It is paris.", "Paris", {"operation": "ilike"}, 1),
        ("It is Rome.", "Paris", {"operation": "ilike"}, 0),
        ("", "", {}, 1),
    ],
)
def test_operations(completion: str, answer: Any, options: dict, expected: float) -> None:
    assert score(completion, answer, **options) == expected


@pytest.mark.parametrize(
    ("completion", "operation", "expected"),
    [
        ("Animorphs", "eq", 1),
        ("The Animorphs", "eq", 1),
        ("7", "eq", 1),
        ("Everworld", "eq", 0),
        ("7", "ne", 0),
        ("Everworld", "ne", 1),
        ("Was it Animorphs?", "like", 1),
        ("Was it Everworld?", "like", 0),
    ],
)
def test_any_answer_of_a_list_counts(completion: str, operation: str, expected: float) -> None:
    accepted = ["Animorphs", "The Animorphs", 7]
    assert score(completion, accepted, operation=operation) == expected


@pytest.mark.parametrize(
    "answer", [None, True, {"value": "x"}, [], ["x", None], [["x"]], ["x"] * 101]
)
def test_a_reference_that_is_no_text_leaves_the_completion_ungraded(answer: Any) -> None:
    with pytest.raises(GraderError, match="invalid_variable_error: column 'answer' holds"):
        score("x", answer)


@pytest.mark.parametrize("answer", ["", " ", ["Paris", ""]])
def test_an_empty_reference_cannot_be_looked_for(answer: Any) -> None:
    with pytest.raises(GraderError, match="which every completion contains"):
        score("x", answer, operation="like")
