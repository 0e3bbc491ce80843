"""References graded against themselves, and columns that are none."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from engine.preflight import References, better_columns, reference_counts
from engine.preflight.references import references_of
from engine.rewards import Services, parse_graders
from engine.rewards.string_check import StringCheck


def _looked(grader: dict[str, Any], rows: list[dict[str, Any]]) -> References:
    (count,) = reference_counts(parse_graders([grader]))
    for number, row in enumerate(rows, start=1):
        count.add(number, row)
    return count.references()


def _rows(*answers: Any) -> list[dict[str, Any]]:
    asked = [{"role": "user", "content": "What is 1 + 1?"}]
    return [{"messages": asked, "answer": answer} for answer in answers]


def test_good_numbers_in_every_form_score_full_against_themselves() -> None:
    rows = _rows("2", 3, 4.5, r"so \boxed{6}", "first 1 + 1\n#### 7", "3/4")
    for which in ("last", "first", "only"):
        found = _looked({"type": "numeric", "which": which}, rows)
        assert (found.num_checked, found.num_unusable, found.num_unequal) == (6, 0, 0), which


def test_rows_that_cannot_be_read_are_named() -> None:
    found = _looked({"type": "numeric"}, _rows("2", "two", "3", None))
    assert (found.num_unusable, found.unusable_rows) == (2, (2, 4))
    assert "'two', which is not a number" in found.reason


class _Deaf(StringCheck):
    """Never hears a no."""

    def score(self, completion: str, row: Any) -> float:
        return 0.0 if completion == "no" else super().score(completion, row)


def test_a_reference_that_its_grader_takes_for_wrong_is_named() -> None:
    (count,) = reference_counts([_Deaf("deaf")])
    for number, row in enumerate(_rows("yes", "no"), start=1):
        count.add(number, row)
    found = count.references()
    assert (found.num_checked, found.num_unequal, found.unequal_rows) == (2, 1, (2,))


def test_a_list_of_accepted_answers_and_a_space_in_front_are_no_faults() -> None:
    found = _looked({"type": "string_check", "strip": False}, _rows(["yes", "y"], " no"))
    assert (found.num_checked, found.num_unequal, found.num_unusable) == (2, 0, 0)


def test_a_check_for_what_is_not_equal_is_not_held_against_its_own_references() -> None:
    found = _looked({"type": "string_check", "operation": "ne"}, _rows("a", "b"))
    assert (found.num_checked, found.num_unequal) == (2, 0)


def test_a_pattern_is_not_asked_to_match_the_bare_reference() -> None:
    grader = {"type": "regex", "pattern": r"answer: (\d+)", "target": "answer"}
    assert _looked(grader, _rows("5")).num_unequal == 0


def test_constant_columns_counters_and_prompts_are_told() -> None:
    grader = {"type": "string_check"}
    assert _looked(grader, _rows(*["x"] * 30)).num_distinct == 1
    assert _looked(grader, _rows(*range(30))).is_rising
    assert not _looked(grader, _rows(3, 1, 2)).is_rising
    assert _looked(grader, _rows("What is 1 + 1?", "2")).num_like_prompt == 1


def test_a_column_that_is_no_answer_is_not_taken_for_one() -> None:
    """Every row of a generated dataset names the same task."""
    entry = {"question": "2 + 2", "answer": "4", "metadata": {}}
    rows = [{"messages": [], "reasoning_gym": "basic_arithmetic", **entry} for _ in range(30)]
    grader = parse_graders([{"type": "reasoning_gym"}])[0]
    found = _looked({"type": "reasoning_gym"}, [*rows, {"messages": []}])
    assert (found.num_checked, found.num_distinct, found.num_unusable) == (31, 0, 1)
    assert found.unusable_rows == (31,)
    assert references_of(grader, rows[0]) == ()
    (numeric,) = parse_graders([{"type": "numeric"}])
    assert references_of(numeric, rows[0]) == ("4",)


def test_parts_of_a_formula_are_looked_at_under_their_own_names() -> None:
    parts = {"right": {"type": "numeric", "target": "gold"}, "short": {"type": "length"}}
    grader = {"type": "multi", "graders": json.dumps(parts), "calculate_output": "right"}
    (count,) = reference_counts(parse_graders([grader]))
    assert (count.name, count.column) == ("multi.right", "gold")


def test_a_grader_that_waits_is_asked_too() -> None:
    (count,) = reference_counts(parse_graders([{"type": "math"}]))
    assert not count.is_pure
    nobody = Services()  # who compares formulas; numbers need nobody
    for number, row in enumerate(_rows("2", "x^2 + 1"), start=1):
        asyncio.run(count.add_waiting(number, row, nobody))
    found = count.references()
    assert (found.num_checked, found.num_unequal, found.unusable_rows) == (2, 0, (2,))
    assert found.reason == "this process has no workers"


def test_another_column_that_completions_meet_is_found() -> None:
    graders = parse_graders([{"type": "numeric", "target": "number"}])
    rows = [{"messages": [], "number": str(n), "sum": str(2 * n + 100)} for n in range(20)]
    said = [("about " + row["sum"] if n % 3 == 0 else "?", row) for n, row in enumerate(rows)]
    (found,) = better_columns(graders, said, ["messages", "number", "sum"])
    assert (found.chosen, found.better, found.chosen_share) == ("number", "sum", 0.0)
    assert found.better_share == 7 / 20


def test_the_right_column_stays_even_where_another_is_met_by_chance() -> None:
    graders = parse_graders([{"type": "numeric", "target": "sum"}])
    rows = [{"messages": [], "a": "5", "sum": "6"}] * 10
    said = [("6" if n < 5 else "5", row) for n, row in enumerate(rows)]
    assert better_columns(graders, said, ["a", "sum"]) == ()
