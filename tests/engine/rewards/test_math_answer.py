"""Answers are compared as mathematics, and what is hostile costs its own trajectory alone."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from engine.rewards import Grade, Sample, Services, grade, math_answer, parse_graders
from engine.rewards.workers import Workers


def graded(pairs: Sequence[tuple[Any, str]]) -> list[Grade]:
    """(reference, completion) each graded by `math`, all at once."""

    async def run() -> list[Grade]:
        workers = Workers()
        services = Services("acme", workers=workers)
        graders = parse_graders([{"type": "math"}])
        samples = [Sample(completion, {"answer": answer}) for answer, completion in pairs]
        try:
            return await asyncio.gather(*(grade(graders, one, services) for one in samples))
        finally:
            await workers.close()

    return asyncio.run(run())


EQUAL = [
    ("x+1", r"Thus \boxed{1+x}."),
    (r"$\frac{\sqrt{2}}{2}$", r"\boxed{\frac{1}{\sqrt{2}}}"),
    (r"\frac{3}{4}", "The answer is 3/4."),
    ("3/4", r"so it is $0.75$"),
    (r"(x-1)(x+1)", r"$$x^2-1$$"),
    (r"\{1, 2\}", r"\boxed{\{2, 1\}}"),
    ("1,2", r"\boxed{2, 1}"),
    (r"[0, 1)", r"\boxed{[0,1)}"),
    (r"2\pi", r"\boxed{\pi \cdot 2}"),
    (r"\sin(x)^2+\cos(x)^2", r"\boxed{1}"),
    ("18", "She makes 18 dollars."),
    ("The total is 1,234.\n#### 1,234", r"\boxed{1234}"),
    (r"So it is \boxed{x+1}.", r"\boxed{x+1}"),
    (48, "48"),
    (0.75, r"\boxed{\dfrac{3}{4}}"),
    ("−7", "−7"),
    ("１２", "12"),
    ("1 234", "1234"),
    ("1e3", "1000"),
    ("3 1/4", r"\boxed{\frac{13}{4}}"),
    ("12%", r"\boxed{12\%}"),
    ("12 apples", r"\boxed{12 \text{ apples}}"),
    ("A", r"\boxed{A}"),
    ("(A)", " (A)\n"),
    ("x+1", "x+1"),
]
UNEQUAL = [
    ("x+1", r"\boxed{x-1}"),
    ("x+1", r"\boxed{y+1}"),
    ("18", "She makes 19 dollars."),
    ("18", r"\boxed{x+18}"),
    ("18", r"First 18, then \boxed{17}"),
    (r"\frac{3}{4}", r"\boxed{\frac{4}{3}}"),
    (r"\{1, 2\}", r"\boxed{\{1, 3\}}"),
    (r"[0, 1)", r"\boxed{[0,1]}"),
    ("18", ""),
    ("18", "I do not know."),
    ("A", r"\boxed{B}"),
]


def test_equal_answers_score_1_and_others_0() -> None:
    found = [result.reward for result in graded(EQUAL + UNEQUAL)]
    assert found == [1.0] * len(EQUAL) + [0.0] * len(UNEQUAL)


def test_a_reference_that_is_no_expression_leaves_the_completion_ungraded() -> None:
    references = ["twelve", "", "   ", None, True, ["48"], {"value": 48}, "Chief of Protocol"]
    for result in graded([(reference, "12") for reference in references]):
        assert result.reward is None
        assert result.error.startswith("math: invalid_variable_error: column 'answer' holds")


def test_a_reference_that_takes_too_long_to_read_is_told_and_not_the_policys_fault() -> None:
    reference = "(" * 900 + "1" + ")" * 900
    (result,) = graded([(reference, r"\boxed{x}")])
    assert result.reward is None
    assert result.error.startswith("math: unresponsive_reward_error: the reference in column")


HOSTILE = [
    r"\boxed{9^{9^{9^{9}}}}",
    r"\boxed{10000000!}",
    r"\boxed{(x+1)^{50000}}",
    r"\boxed{" + "(" * 9_000 + "1" + ")" * 9_000 + "}",
    r"\boxed{" + "{" * 9_000 + "}",
    r"\boxed{\binom{100000000}{5000000}}",
    "9**9**9**9",
    "$" * 30_000,
    "1+" * 30_000 + "1",
    r"\boxed{__import__('os').system('true')}",
]


def test_hostile_completions_score_0_and_the_honest_ones_beside_them_1(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(math_answer, "TIMEOUT_S", 0.3)
    honest = [("x+1", r"\boxed{1+x}")] * 3
    found = [result.reward for result in graded([("x+1", text) for text in HOSTILE] + honest)]
    assert found == [0.0] * len(HOSTILE) + [1.0] * len(honest)


def test_without_workers_it_is_ungraded() -> None:
    graders = parse_graders([{"type": "math"}])
    sample = Sample(r"\boxed{1+x}", {"answer": "x+1"})
    result = asyncio.run(grade(graders, sample, Services()))
    assert result.reward is None
    assert result.error == "math: python_grader_server_error: this process has no workers"
