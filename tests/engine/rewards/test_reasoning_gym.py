"""reasoning-gym's own scorers, on rows as they are stored, and on text that is meant to do harm."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from engine.rewards import Grade, Sample, Services, grade, parse_graders
from engine.rewards.reasoning_gym_tasks import REFUSED, TASKS
from engine.rewards.workers import Workers

reasoning_gym = pytest.importorskip("reasoning_gym", reason="the extra reasoning is not installed")
DATASETS = pytest.importorskip("reasoning_gym.factory").DATASETS
Row = dict[str, Any]


def rows_of(task: str, size: int = 2) -> list[Row]:
    """Rows as a generated dataset stores them: JSON, the question as a chat."""
    made = reasoning_gym.create_dataset(task, seed=3, size=size)
    entries = [made[index] for index in range(size)]
    rows = [
        {
            "messages": [{"role": "user", "content": entry["question"]}],
            "answer": entry["answer"],
            "metadata": entry["metadata"],
            "reasoning_gym": {"task": task, "seed": 3, "size": size, "index": index},
        }
        for index, entry in enumerate(entries)
    ]
    return json.loads(json.dumps(rows, default=str))  # type: ignore[no-any-return]


def graded(pairs: Sequence[tuple[Row, str]], **parameters: Any) -> list[Grade]:
    """(row, completion) each graded by `reasoning_gym`, all at once."""

    async def run() -> list[Grade]:
        workers = Workers(1)
        services = Services("acme", workers=workers)
        graders = parse_graders([{"type": "reasoning_gym", **parameters}])
        samples = [Sample(completion, row) for row, completion in pairs]
        try:
            return await asyncio.gather(*(grade(graders, one, services) for one in samples))
        finally:
            await workers.close()

    return asyncio.run(run())


def scores(pairs: Sequence[tuple[Row, str]], **parameters: Any) -> list[float | None]:
    return [found.reward for found in graded(pairs, **parameters)]


def test_every_task_of_the_library_was_looked_at() -> None:
    assert set(DATASETS) == TASKS | set(REFUSED)
    assert not TASKS & set(REFUSED)


def test_the_stored_answer_of_every_task_has_the_full_score_and_nonsense_has_not() -> None:
    pairs = [
        (row, answer)
        for task in sorted(TASKS)
        for row in rows_of(task, 1)
        if row["answer"] is not None
        for answer in (row["answer"], "no such answer, none at all")
    ]
    assert len(pairs) > 2 * 80
    found = scores(pairs)
    tasks = [row["reasoning_gym"]["task"] for row, _ in pairs[::2]]
    assert dict(zip(tasks, found[::2], strict=True)) == dict.fromkeys(tasks, 1.0)
    wrong = dict(zip(tasks, found[1::2], strict=True))
    assert {task: score for task, score in wrong.items() if score is None or score > 0.5} == {}


def problem(task: str, answer: str | None, **metadata: Any) -> Row:
    return {"reasoning_gym": task, "answer": answer, "metadata": metadata}


EDGE = {"vertices": [0, 1], "edges": [[0, 1]], "num_colors": 2, "color_options": [1, 2]}
LETTERS = problem("palindrome_generation", "aba", letters=list("aab"))
JUGS = problem("jugs", "x", puzzle={"jug_capacities": [3, 5], "target": 5})
BOARD = problem("rearc", "", output=[[1, 2], [3, 4]])
BOXES = problem("boxnet", None, initial_state={"0.5_0.5": ["box_blue", "target_blue"]})
WORKED_OUT: list[tuple[Row, str, float]] = [
    # (row, completion, the score that the library's rules give by hand)
    (problem("chain_sum", "12"), "12.0", 1.0),
    (problem("chain_sum", "12"), " It is 12\n", 0.25),  # 2 of 8 characters
    (problem("chain_sum", "12"), "13", 0.0),
    (problem("graph_color", None, puzzle=EDGE), '{"0": 2, "1": 1}', 1.0),
    (problem("graph_color", None, puzzle=EDGE), '{"0": 2, "1": 2}', 0.01),
    (LETTERS, "aba", 1.0),
    (LETTERS, "bab", 0.05),
    (JUGS, '["fill B"]', 1.0),
    (JUGS, '["fill A"]', 0.01),
    (BOARD, "1 2\n3 4", 1.0),
    (BOARD, "1 2\n3 5", 0.05),
    (BOXES, '[{"Agent[0.5, 0.5]": "move(box_blue, target_blue)"}]', 1.0),
    (BOXES, "[]", 0.05),
]


def test_scores_are_those_of_the_librarys_rules() -> None:
    found = scores([(row, completion) for row, completion, _ in WORKED_OUT])
    assert found == [expected for _, _, expected in WORKED_OUT]


def test_the_answer_may_stand_in_tags() -> None:
    [row] = rows_of("chain_sum", 1)
    right = row["answer"]
    completions = [
        f"<think>hm</think><answer> {right} </answer>",
        f"<answer>1</answer> no: <answer>{right}</answer> is it",
        f"<answer>{right}</answer> no: <answer>1</answer>",
        f"<answer>{right}",
        right,
    ]
    found = scores([(row, one) for one in completions], extract="answer_tag")
    assert found == [1.0, 1.0, 0.0, 0.0, 0.0]


@pytest.mark.parametrize(("task", "reason"), sorted(REFUSED.items()))
def test_tasks_that_cannot_be_scored_safely_say_why(task: str, reason: str) -> None:
    row = {"reasoning_gym": {"task": task}, "metadata": {}, "answer": "1"}
    [found] = graded([(row, "1")])
    assert (found.reward, reason in found.error) == (None, True)
    [grader] = parse_graders([{"type": "reasoning_gym"}])
    assert reason in grader.row_problem(row)  # type: ignore[attr-defined]


def test_rows_that_hold_no_problem_are_ungraded() -> None:
    found = graded(
        [
            ({"answer": "1"}, "1"),
            ({"reasoning_gym": "nonsense", "metadata": {}}, "1"),
            ({"reasoning_gym": ["gcd"], "metadata": {}}, "1"),
            ({"reasoning_gym": "gcd", "answer": "1"}, "1"),
            ({"reasoning_gym": "jugs", "metadata": {}, "answer": None}, "["),
            ({"reasoning_gym": "word_ladder", "metadata": {}, "answer": None}, "1"),
        ]
    )
    assert [one.reward for one in found] == [None, None, None, None, 0.0, None]
    assert "no column 'reasoning_gym'" in found[0].error
    assert "names no task of reasoning-gym" in found[1].error
    assert "the column metadata must hold" in found[3].error
    assert "can do nothing with the row" in found[5].error


def test_an_answer_that_the_scorer_stumbles_over_scores_0() -> None:
    [factors] = rows_of("prime_factorization", 1)
    [boxes] = rows_of("boxnet", 1)
    pairs = [(factors, "two times three"), (boxes, "7"), (boxes, "[1]")]
    assert scores(pairs) == [0.0, 0.0, 0.0]


HARMFUL = """__import__("pathlib").Path({path!r}).touch()"""


def test_no_scorer_runs_what_a_policy_writes(tmp_path: Path) -> None:
    mark = tmp_path / "touched"
    code = HARMFUL.format(path=str(mark))
    answers = (code, f"[{code}]", f'{{"a": {code}}}', f"({code}, 1)", f"1 + int({code})")
    found = graded(
        [(row, a) for task in sorted(TASKS) for row in rows_of(task, 1) for a in answers]
    )
    assert not mark.exists()
    # 0.25: propositional_logic knows no other variable than A to Z and calls the rest trivial
    assert all(one.reward is not None and one.reward <= 0.25 for one in found)


def test_the_child_refuses_a_scorer_that_would_run_text(tmp_path: Path) -> None:
    mark = tmp_path / "touched"

    async def run() -> Any:
        workers = Workers(1)
        entry = {"answer": "x", "metadata": {}}
        arguments = {
            "task": "spiral_matrix", "answer": HARMFUL.format(path=str(mark)), "entry": entry
        }  # fmt: skip
        try:
            return await workers.run("reasoning_gym", arguments, 4.0)
        finally:
            await workers.close()

    assert asyncio.run(run()) == 0.0
    assert not mark.exists()


def test_what_takes_too_long_costs_its_own_trajectory_alone() -> None:
    [sums] = rows_of("chain_sum", 1)
    letters = [chr(65 + number) for number in range(26)]
    endless = " ∨ ".join(letters)  # true or not for each of 2 ** 26 assignments
    short = problem("propositional_logic", None, variables=letters, premises=["A"])
    found = graded(
        [
            (short, endless),
            ({**short, "answer": endless}, endless),
            (sums, "1" * 50_001),
            (sums, sums["answer"]),
        ]
    )
    assert [one.reward for one in found] == [0.0, None, 0.0, 1.0]
    assert "propositional_logic took longer than 4 s for the row alone" in found[1].error


def test_an_answer_that_fills_memory_costs_its_own_trajectory_alone() -> None:
    [cube], [sums] = rows_of("rubiks_cube", 1), rows_of("chain_sum", 1)
    found = scores([(cube, "F999999999"), (sums, sums["answer"])])
    assert found == [0.01, 1.0]  # that scorer catches the failure by itself
