"""Nothing that a guest answers is believed: here are guests that were patched by their tenants."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from engine.sandbox import Sandboxes, Score
from engine.sandbox.results import execution_of, problem_of, rows_of, score_of

from .conftest import Run, call

RUNTIME = "python_grader_runtime_error: "


def lying(answer: str) -> str:
    """A source whose answer is this text, whatever the runner wanted to say."""
    return (
        "import sys\n"
        f"sys.modules['runner']._dumps = lambda answer: {answer}\n"
        "def reward(completion):\n    return 0.5\n"
    )


def rows(*entries: str) -> str:
    return repr(f'{{"rows": [{", ".join(entries)}], "output": ""}}')


@pytest.mark.parametrize(
    ("answer", "wanted"),
    [
        (rows("1.0", "2.0"), "the answer is not a list of 1 results"),
        (rows(), "the answer is not a list of 1 results"),
        ("'[1.0]'", "the answer is not a list of 1 results"),
        ("'{}'", "the answer is not a list of 1 results"),
        ("'nonsense'", "the answer cannot be read"),
        ("'[' * 100000", "the answer cannot be read"),
        (rows("NaN"), "the answer cannot be read: it holds NaN"),
        (rows("Infinity"), "the answer cannot be read: it holds Infinity"),
        (rows("1" * 5000), "the answer cannot be read"),
        (rows("1e999"), "the result is not a finite number"),
        (rows("1" * 400), "the result is not a finite number"),
        (rows("true"), "the result is not a number"),
        (rows("null"), "the result is not a number"),
        (rows('"1.0"'), "the result is not a number"),
        (rows("[1.0]"), "the result is not a number"),
        ("'x' * 600_000", "the result is larger than 520 KiB"),
        ("'\\u00e9' * 300_000", "the result is larger than 520 KiB"),
        ("'x' * 200_000_000", "the interpreter ended"),
        ("1.0", "the interpreter ended"),
    ],
)
def test_an_answer_of_another_shape_is_no_score(
    score: Callable[..., Score], answer: str, wanted: str
) -> None:
    found = score(lying(answer))
    assert found.value is None and found.error.startswith(RUNTIME + wanted)


def test_a_patched_guest_can_only_choose_its_own_score(score: Callable[..., Score]) -> None:
    assert score(lying(rows("999.0"))) == Score(999.0)
    assert score(lying(rows("1e300"))) == Score(1e6)
    assert score(lying(rows("-1e300"))) == Score(-1e6)


def test_what_a_guest_says_went_wrong_is_cut_and_has_a_known_name(
    score: Callable[..., Score],
) -> None:
    entry = '{"code": "model_grader_refusal_error", "error": "%s", "line": -3}' % ("x" * 5000)
    found = score(lying(rows(entry)))
    assert found.error.startswith(RUNTIME + "xxx") and len(found.error) == 1000
    assert found.line is None


def test_output_of_a_patched_guest_is_cut(run: Run, sandboxes: Sandboxes) -> None:
    answer = "'{\"rows\": [1.0], \"output\": \"' + 'x' * 500_000 + '\"}'"
    trial = run(sandboxes.trial("mallory", lying(answer), [call()]))
    assert trial.scores == [Score(1.0)] and trial.output == "x" * 65_536


def test_a_patched_guest_cannot_fill_a_turn_of_the_python_tool(
    run: Run, sandboxes: Sandboxes
) -> None:
    answer = "'{\"output\": \"' + 'x' * 1_000_000 + '\", \"error\": 5}'"
    code = f"import sys\nsys.modules['runner']._dumps = lambda found: {answer}"
    found = run(sandboxes.execute("mallory", "patched", code))
    assert found.output == "x" * 65_536 and found.error == "the function failed"
    run(sandboxes.end("mallory", "patched"))


def test_entries_are_read_one_by_one() -> None:
    assert score_of(-0.5, 100) == Score(-0.5)
    assert score_of(3, 100) == Score(3.0)
    assert score_of({"error": "e", "line": 7}, 100) == Score(None, RUNTIME + "e", 7)
    assert score_of({"error": "e", "line": True}, 100).line is None
    assert rows_of('{"rows": [1], "output": 5}', 1) == ([1], "")
    assert problem_of("{}", 100) is None
    with pytest.raises(ValueError, match="not an object"):
        problem_of("[]", 100)
    with pytest.raises(ValueError, match="not an object"):
        execution_of('{"output": 1}', 10, False, 10)
