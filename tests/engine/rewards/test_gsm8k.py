"""Every answer of GSM8K's test part, written in right and wrong ways, by `numeric` and `math`."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable
from fractions import Fraction
from itertools import pairwise
from pathlib import Path

import pytest

from engine.rewards import Grade, Sample, Services, grade, parse_graders
from engine.rewards.workers import Workers

ROOT = Path(__file__).resolve().parents[3]
DATA = Path(os.environ.get("MARLAAS_TEST_DATA", ROOT / "../shared/data"))
NUM_ROWS = 1_319

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not DATA.is_dir(), reason=f"no sample files: set MARLAAS_TEST_DATA (looked at {DATA})"
    ),
]

RIGHT: dict[str, Callable[[int], str]] = {
    "plain": lambda n: f"{n}",
    "separated": lambda n: f"The answer is {n:,}.",
    "money": lambda n: f"3 eggs at ${n}/3 each make ${n:,} dollars",
    "sentence": lambda n: f"She had 5 at first; after 2 days it is {n} apples.",
    "boxed": lambda n: rf"We get $2 \cdot 3 = 6$, so \boxed{{{n}}}, which is more than 1.",
    "decimals": lambda n: f"It is {n}.00",
    "fraction": lambda n: rf"So it is \boxed{{\frac{{{2 * n}}}{{2}}}}.",
    "gsm8k": lambda n: f"5 * 2 = <<5*2=10>>10\n#### {n:,}",
}
WRONG: dict[str, Callable[[int], str]] = {
    "one more": lambda n: f"The answer is {n + 1}.",
    "one less": lambda n: rf"\boxed{{{n - 1}}}",
    "negated": lambda n: f"#### {-n if n else 1}",
    "digits swapped": lambda n: f"The answer is {_swapped(n)}.",
    "ten times": lambda n: rf"\boxed{{{n * 10 or 10}}}",
    "named, then another": lambda n: f"It is not {n} but {n + 7}.",
    "a half more": lambda n: f"It is {n}.5",
    "divided": lambda n: rf"\boxed{{\frac{{{n or 1}}}{{3}}}}",
}


def _swapped(n: int) -> int:
    """Another number: the first two digits that differ change places; if none do, a digit more."""
    digits = list(str(abs(n)))
    for place, (one, other) in enumerate(pairwise(digits)):
        if one != other:
            digits[place : place + 2] = other, one
            return int("".join(digits))
    return int("".join(digits) + "3")


def rows() -> list[dict[str, str]]:
    lines = (DATA / "gsm8k_test.jsonl").read_text(encoding="utf-8").splitlines()
    found = [json.loads(line) for line in lines]
    assert len(found) == NUM_ROWS
    return found


def graded(write: Callable[[int], str]) -> list[Grade]:
    """Every row's answer, written so, graded by both functions."""

    async def run() -> list[Grade]:
        workers = Workers()
        services = Services("acme", workers=workers)
        graders = parse_graders([{"type": "numeric"}, {"type": "math"}])
        try:
            calls = []
            for row in rows():
                number = Fraction(row["answer"].rpartition("####")[2].replace(",", ""))
                assert number.denominator == 1
                calls.append(grade(graders, Sample(write(int(number)), row), services))
            return [result for n in range(0, NUM_ROWS, 500) for result in await _all(calls, n)]
        finally:
            await workers.close()

    async def _all(calls: list, start: int) -> list[Grade]:
        return await asyncio.gather(*calls[start : start + 500])

    return asyncio.run(run())


@pytest.mark.parametrize("form", RIGHT)
def test_every_right_answer_scores_1(form: str) -> None:
    results = graded(RIGHT[form])
    assert [result.rewards for result in results] == [{"numeric": 1.0, "math": 1.0}] * NUM_ROWS


@pytest.mark.parametrize("form", WRONG)
def test_every_wrong_answer_scores_0(form: str) -> None:
    results = graded(WRONG[form])
    assert [result.rewards for result in results] == [{"numeric": 0.0, "math": 0.0}] * NUM_ROWS
