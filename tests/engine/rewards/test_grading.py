"""A grade is a weighted sum, or no number at all."""

from dataclasses import dataclass
from typing import Any

import pytest

from engine.rewards import Grade, grade, parse_graders


@dataclass(frozen=True)
class Broken:
    """Answers with whatever it was made with, or raises it."""

    answer: Any
    name: str = "broken"
    weight: float = 1.0

    def score(self, completion: str, row: dict[str, Any]) -> float:
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


def test_the_reward_is_the_weighted_sum() -> None:
    graders = parse_graders(
        [
            {"type": "numeric", "weight": 2},
            {"type": "length", "weight": 0.5, "length": 2, "decay": 4},
            {"type": "exact", "weight": -1},
        ]
    )
    assert grade(graders, "= 7", {"answer": 7}) == Grade(
        2 * 1 + 0.5 * 0.75 - 0, {"numeric": 1.0, "length": 0.75, "exact": 0.0}
    )


def test_a_missing_column_leaves_the_trajectory_ungraded_and_says_so() -> None:
    graders = parse_graders([{"type": "exact", "target": "solution"}, {"type": "length"}])
    result = grade(graders, "7", {"answer": "7"})
    assert result.reward is None
    assert result.rewards == {"exact": None, "length": 1.0}
    assert result.error == "exact: invalid_variable_error: the row has no column 'solution'"


def test_a_function_without_weight_may_fail() -> None:
    graders = parse_graders([{"type": "exact", "weight": 0, "target": "no"}, {"type": "length"}])
    result = grade(graders, "7", {})
    assert (result.reward, result.rewards) == (1.0, {"exact": None, "length": 1.0})
    assert result.error


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (float("nan"), "python_grader_runtime_error: the score is nan"),
        (float("inf"), "python_grader_runtime_error: the score is inf"),
        (ZeroDivisionError("x"), "python_grader_server_error: ZeroDivisionError"),
        (None, "python_grader_server_error: TypeError"),
    ],
)
def test_what_is_no_finite_number_is_no_score(answer: Any, error: str) -> None:
    result = grade([Broken(answer)], "7", {})
    assert (result.reward, result.rewards) == (None, {"broken": None})
    assert result.error == f"broken: {error}"


def test_all_failures_are_told_in_bounded_length() -> None:
    graders = parse_graders(
        [{"type": "exact", "name": f"e{n}", "target": "column" * 16} for n in range(8)]
    )
    assert len(grade(graders, "", {}).error) == 500
