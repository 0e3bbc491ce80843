"""Numbers are read as people and policies write them, and nothing else is taken for one."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from engine.errors import GraderError
from engine.rewards import parse_graders
from engine.rewards.quantities import last_quantity, read_quantity

ROOT = Path(__file__).resolve().parents[3]
DATA = Path(os.environ.get("MARLAAS_TEST_DATA", ROOT / "../shared/data"))
needs_data = pytest.mark.skipif(
    not DATA.is_dir(), reason=f"no sample files: set MARLAAS_TEST_DATA (looked at {DATA})"
)


def score(item: dict[str, object], completion: str, **row: object) -> float:
    (grader,) = parse_graders([item])
    return grader.score(completion, row)  # type: ignore[attr-defined, no-any-return]


@pytest.mark.parametrize(
    ("completion", "answer", "options", "expected"),
    [
        ("3 + 4 = 7", "7", {}, 1),
        ("7 is 3 + 4", "7", {}, 0),
        ("7 is 3 + 4", "7", {"which": "first"}, 1),
        ("7", "7", {"which": "only"}, 1),
        ("It is 7", "7", {"which": "only"}, 0),
        ("The answer is 42.", "42", {}, 1),
        ("It costs $1,234.50!", "1234.5", {}, 1),
        ("1\u202f234", 1234, {}, 1),
        ("1,2,3", "3", {}, 1),
        ("1234,567", "567", {}, 1),
        ("-7", "-7", {}, 1),
        ("−7", "-7", {}, 1),
        ("x = -7", -7, {}, 1),
        ("10-7", "7", {}, 1),
        ("10-7", "-7", {}, 0),
        ("f(x)-7", "7", {}, 1),
        ("12.0", "12", {}, 1),
        ("1e3", "1000", {}, 1),
        ("１２", "12", {}, 1),
        ("12", "The total is 12.\n#### 12", {}, 1),
        ("1234", "#### 1,234", {}, 1),
        ("none", "7", {}, 0),
        ("", "7", {}, 0),
        ("3.14", "3.14159", {"tolerance": 0.01}, 1),
        ("3.1", "3.14159", {"tolerance": 0.01}, 0),
        ("0.3", "0.2", {"tolerance": 0.1}, 1),
        ("12345678901234567891", "12345678901234567890", {}, 0),
        (".5", "0.5", {}, 1),
        ("9" * 100_000, "9", {}, 0),
        ("1e999", "1", {}, 0),
    ],
)
def test_numeric(completion: str, answer: object, options: dict, expected: float) -> None:
    assert score({"type": "numeric", **options}, completion, answer=answer) == expected


@pytest.mark.parametrize(
    "answer",
    [
        "twelve",
        "",
        "(A)",
        "x + 1",
        "7 or 8",
        "1,2,3",
        "3/0",
        "12/05/2024",
        r"\boxed{2\sqrt{3}}",
        r"2^{10}",
        "1" * 2_000,
        None,
        True,
        ["48", "forty-eight"],
        {"value": 48},
        float("nan"),
    ],
)
def test_a_reference_that_is_no_number_leaves_the_completion_ungraded(answer: object) -> None:
    with pytest.raises(GraderError, match="column 'answer' holds"):
        score({"type": "numeric"}, "12", answer=answer)


@pytest.mark.parametrize(
    ("completion", "answer"),
    [
        ("3/4", "0.75"),
        ("It is 3 1/4 cups.", "3.25"),
        ("-3 1/4", "-13/4"),
        ("½", "1/2"),
        ("2½", 2.5),
        (r"\boxed{\frac{3}{4}}", "0.75"),
        (r"So it is $-\dfrac{3}{4}$.", "-3/4"),
        (r"\frac{-3}{4}", "-0.75"),
        (r"\frac34", "3/4"),
        (r"1\frac{1}{2}", "3/2"),
        (r"We add 3 and 4: \boxed{7}, after 2 steps.", "7"),
        (r"\boxed{1} no, \boxed{x = 7}", "7"),
        (r"\boxed{7 \text{ apples}}", "7"),
        (r"\boxed{1{,}234}", "1234"),
        (r"1\,234", "1234"),
        ("#### 18 (after 3 checks)", "18"),
        ("1,234.5", "1234.5"),
        ("1.234,5", "1234.5"),
        ("1 234,5", "1234.5"),
        ("1'234.5", "1234.5"),
        ("1.234.567", "1234567"),
        ("3,14", "3.14"),
        ("0,750", "0.75"),
        ("1,234", "1234"),
        ("1.234", "1.234"),
        ("2 × 10^3", "2000"),
        (r"1.5 \times 10^{-2}", "0.015"),
        ("3·10⁸", "3e8"),
        ("2.5e-3", "0.0025"),
        ("5 million", "5000000"),
        ("12k", "12000"),
        ("-$5", "-5"),
        ("$-5", "-5"),
        ("+5", "5"),
        ("٣٫٥", "3.5"),
        ("12%", "12"),
        ("15 km/h", "15 km/h"),
        ("on 12/05/2024", "2024"),
        (r"$12$", "12"),
    ],
)
def test_other_ways_to_write_the_number(completion: str, answer: object) -> None:
    assert score({"type": "numeric"}, completion, answer=answer) == 1


@pytest.mark.parametrize(
    ("completion", "answer"),
    [
        ("3/4", "4"),
        (r"\boxed{2\sqrt{3}}", "3"),
        (r"\boxed{x^2}", "2"),
        (r"\boxed{7 or 8}", "8"),
        (r"\boxed{}, that is 7", "7"),
        ("5 million", "5"),
        ("3/0", "0"),
        ("#### 18 (after 3 checks)", "3"),
        ("2 10/5", "4"),
    ],
)
def test_what_merely_has_the_number_in_it_is_wrong(completion: str, answer: object) -> None:
    assert score({"type": "numeric"}, completion, answer=answer) == 0


@pytest.mark.parametrize(
    ("completion", "mark", "expected"),
    [
        ("1,234", "point", 1234),
        ("1,234", "comma", 1.234),
        ("1.234", "comma", 1234),
        ("3,14", "point", 14),
        ("3.14", "comma", 14),
        ("1.234.567,89", "comma", 1234567.89),
    ],
)
def test_the_decimal_mark_can_be_said(completion: str, mark: str, expected: float) -> None:
    quantity = last_quantity(completion, mark)
    assert quantity is not None
    assert quantity.value is not None
    assert float(quantity.value) == expected


@pytest.mark.parametrize(
    ("completion", "answer", "expected"),
    [
        ("12 km", "12 km", 1),
        ("12 m", "12 km", 0),
        ("12", "12 km", 0),
        ("12 km", "12", 1),
        ("5 mW", "5 MW", 0),
        ("$5", "5 dollars", 1),
        ("$5", "5 USD", 1),
        ("€5", "$5", 0),
        ("5 €", "€5", 1),
        ("$5 per hour", "$5", 1),
        ("12 apple", "12 apples", 1),
        ("3 m^2", "3 m²", 1),
        ("3 m", "3 m²", 0),
        ("12 percent", "12%", 1),
        (r"$12$ dollars", "$12", 1),
        ("20 °C", "20°C", 1),
    ],
)
def test_units_are_compared_if_asked_for(completion: str, answer: str, expected: float) -> None:
    item: dict[str, object] = {"type": "numeric"}
    assert score(item | {"units": "compare"}, completion, answer=answer) == expected
    assert score(item, completion, answer=answer) == 1


@pytest.mark.parametrize(
    ("completion", "answer", "expected"),
    [("12%", "0.12", 1), ("0.12", "12%", 1), ("12%", "12%", 1), ("12", "12%", 0)],
)
def test_a_percentage_can_count_as_a_fraction(completion: str, answer: str, expected: int) -> None:
    item: dict[str, object] = {"type": "numeric", "percent": "fraction"}
    assert score(item, completion, answer=answer) == expected
    assert score(item | {"units": "compare"}, completion, answer=answer) == expected


@pytest.mark.parametrize(
    ("completion", "expected"), [("101", 1), ("99", 1), ("101.1", 0), ("-100", 0)]
)
def test_a_tolerance_may_be_a_part_of_the_reference(completion: str, expected: float) -> None:
    item: dict[str, object] = {"type": "numeric", "relative_tolerance": 0.01}
    assert score(item, completion, answer=100) == expected


@needs_data
def test_every_way_to_write_an_answer_agrees_with_itself_or_is_refused() -> None:
    lines = (DATA / "tricky/90_answer_formats.jsonl").read_text(encoding="utf-8").splitlines()
    answers = [json.loads(line)["answer"] for line in lines]
    read = {answer: read_quantity(answer.rpartition("####")[2]) for answer in answers}
    refused = {answer for answer in answers if read[answer] is None and "boxed" not in answer}
    assert refused == {"twelve", "(A)"}
    for answer in set(answers) - refused:
        assert score({"type": "numeric"}, answer, answer=answer) == 1
    values = {answer: float(q.value) for answer, q in read.items() if q and q.value is not None}
    assert [values[key] for key in ("$1,234.50", "3/4", "1 234", "1.234,5", "12 apples")] == [
        1234.5, 0.75, 1234, 1234.5, 12
    ]  # fmt: skip


@needs_data
def test_only_numbers_and_their_texts_are_references() -> None:
    lines = (DATA / "tricky/21_mixed_answer_types.jsonl").read_text(encoding="utf-8").splitlines()
    usable = []
    for line in lines:
        try:
            usable.append(score({"type": "numeric"}, "48", **json.loads(line)))
        except GraderError:
            usable.append(None)
    assert usable == [1, 1, 1, None, None, None, None]


@pytest.mark.parametrize(
    "text",
    [
        "1,234," * 20_000 + "2345",
        "1 234 " * 20_000 + "2",
        "1" * 100_000,
        "1/" * 50_000 + "1",
        r"\frac{" * 16_000,
        r"\frac{1}" * 12_000,
        r"\text{" * 16_000,
        r"\boxed{" * 14_000,
        "1 " * 50_000,
        "1 x" * 33_000,
        "$" * 100_000,
        "-" * 100_000,
        "1e" * 50_000,
        "1 × 10^" * 14_000,
        "½" * 100_000,
    ],
)
def test_long_hostile_text_is_read_in_time_that_grows_with_its_length(text: str) -> None:
    """What is quadratic would take minutes here, and run into the limit that every test has."""
    assert score({"type": "numeric"}, text, answer="31415926") == 0
    assert score({"type": "numeric", "which": "first"}, text, answer="31415926") == 0
    assert score({"type": "numeric", "which": "only"}, text, answer="31415926") == 0
