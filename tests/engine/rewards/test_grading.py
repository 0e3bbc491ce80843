"""A grade is a weighted sum, or no number at all."""

import asyncio
import threading
from dataclasses import dataclass
from typing import Any

import pytest

from engine.rewards import Grade, Sample, Services, grade, grade_purely, parse_graders

RANGE = "it must be a number from -1,000,000 to 1,000,000"


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
    assert grade_purely(graders, "= 7", {"answer": 7}) == Grade(
        2 * 1 + 0.5 * 0.75 - 0, {"numeric": 1.0, "length": 0.75, "exact": 0.0}
    )


def test_a_missing_column_leaves_the_trajectory_ungraded_and_says_so() -> None:
    graders = parse_graders([{"type": "exact", "target": "solution"}, {"type": "length"}])
    result = grade_purely(graders, "7", {"answer": "7"})
    assert result.reward is None
    assert result.rewards == {"exact": None, "length": 1.0}
    assert result.error == "exact: invalid_variable_error: the row has no column 'solution'"


def test_a_function_without_weight_may_fail() -> None:
    graders = parse_graders([{"type": "exact", "weight": 0, "target": "no"}, {"type": "length"}])
    result = grade_purely(graders, "7", {})
    assert (result.reward, result.rewards) == (1.0, {"exact": None, "length": 1.0})
    assert result.error


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (float("nan"), f"python_grader_runtime_error: the score is nan; {RANGE}"),
        (float("inf"), f"python_grader_runtime_error: the score is inf; {RANGE}"),
        (ZeroDivisionError("x"), "python_grader_server_error: ZeroDivisionError"),
        (None, "python_grader_server_error: TypeError"),
    ],
)
def test_what_is_no_finite_number_is_no_score(answer: Any, error: str) -> None:
    result = grade_purely([Broken(answer)], "7", {})
    assert (result.reward, result.rewards) == (None, {"broken": None})
    assert result.error == f"broken: {error}"


@dataclass(frozen=True)
class Slow:
    """Needs what is not there, or waits for another of its kind."""

    meeting: asyncio.Barrier | None
    name: str
    weight: float = 1.0

    async def score_with(self, sample: Sample, services: Services) -> float:
        if self.meeting is None:
            services.need("sandboxes")
        else:
            await self.meeting.wait()
        return float(sample.completion)


def test_functions_that_wait_do_so_at_once() -> None:
    async def graded() -> Grade:
        meeting = asyncio.Barrier(2)
        graders = [Slow(meeting, "a"), Slow(meeting, "b", weight=2)]
        return await grade(graders, Sample("7", {}), Services())

    assert asyncio.run(graded()) == Grade(21.0, {"a": 7.0, "b": 7.0})


@dataclass(frozen=True)
class Waiting:
    """Scores once the event loop has gone on."""

    went_on: threading.Event
    name: str = "waiting"
    weight: float = 1.0

    def score(self, completion: str, row: dict[str, Any]) -> float:
        return float(self.went_on.wait(60))


def test_a_slow_function_does_not_keep_the_event_loop_from_others() -> None:
    async def graded() -> Grade:
        went_on = threading.Event()
        asyncio.get_running_loop().call_later(0.01, went_on.set)
        return await grade([Waiting(went_on)], Sample("7", {}), Services())

    assert asyncio.run(graded()) == Grade(1.0, {"waiting": 1.0})


def test_what_this_process_cannot_do_leaves_ungraded() -> None:
    result = asyncio.run(grade([Slow(None, "a")], Sample("7", {}), Services()))
    assert (result.reward, result.rewards) == (None, {"a": None})
    assert result.error == "a: python_grader_server_error: this process has no sandboxes"


def test_all_failures_are_told_in_bounded_length() -> None:
    graders = parse_graders(
        [{"type": "exact", "name": f"e{n}", "target": "column" * 16} for n in range(8)]
    )
    assert len(grade_purely(graders, "", {}).error) == 500
