"""Completions' code against unit tests, honest and not, in real sandboxes."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from engine.errors import GraderError
from engine.rewards import parse_graders
from engine.rewards.code import Code, code_of
from engine.rewards.services import Sample, Services
from engine.sandbox import Limits, Sandboxes

ASSERTS = """
import math
numbers = [3, 1, 2]
assert best(numbers) == 3
assert best([5]) == 5
assert not best([0])
assert math.isclose(best([0.5, 0.25]), 0.5)
"""
RIGHT = "def best(numbers):\n    return max(numbers)\n"
ADDS = [{"input": "1 2\n", "output": "3\n"}, {"input": "-4 4\n", "output": "0"}]


class Graded:
    """Scores completions with sandboxes that live as long as the module's tests."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._sandboxes = self._loop.run_until_complete(self._made())

    async def _made(self) -> Sandboxes:
        return Sandboxes(max_children=1, limits=Limits(row_s=0.8))

    def __call__(self, completion: str, tests: Any, scoring: str = "share") -> float:
        sample = Sample(completion, {"tests": tests})
        services = Services(tenant="alice", sandboxes=self._sandboxes)
        grader = Code("code", 1.0, "tests", scoring)
        return self._loop.run_until_complete(grader.score_with(sample, services))

    def close(self) -> None:
        self._loop.run_until_complete(self._sandboxes.close())
        self._loop.close()


@pytest.fixture(scope="module")
def graded() -> Iterator[Graded]:
    found = Graded()
    yield found
    found.close()


def test_the_last_fenced_block_counts_or_all_of_it() -> None:
    assert code_of("x = 1\ny = 2") == "x = 1\ny = 2"
    assert code_of("First\n```python\na\n```\nthen\n  ```py\nb\n\nc\n```\nDone.") == "b\n\nc"
    assert code_of("Cut off:\n```python\na\nb") == "a\nb"
    assert code_of("```python\na\n```\n```\nhalf") == "a"
    assert code_of("") == ""


def test_right_code_passes_and_wrong_code_passes_its_share(graded: Graded) -> None:
    assert graded(f"Here:\n```python\n{RIGHT}```\n", ASSERTS) == 1.0
    assert graded("def best(numbers): return numbers[0]", ASSERTS) == 1.0
    assert graded("def best(numbers): return 5", ASSERTS) == 0.25
    assert graded("def best(numbers): return 5", ASSERTS, "all") == 0.0
    assert graded(RIGHT, ASSERTS, "all") == 1.0
    assert graded("def best(", ASSERTS) == 0.0
    assert graded("I cannot.", ASSERTS) == 0.0


@pytest.mark.parametrize(
    "tests",
    [
        ["assert best([1, 2]) == 2", "assert [4] == [best([4])]"],
        '["assert best([1, 2]) == 2", "assert best([3]) == 3.0"]',
        "def check(candidate):\n    assert candidate([1, 2]) == 2\ncheck(best)\n",
        "class A:\n    limit = 2\nassert best([1, 2]) == A.limit\n",
    ],
)
def test_tests_may_be_a_list_or_a_function(graded: Graded, tests: Any) -> None:
    assert graded(RIGHT, tests) == 1.0
    assert graded("def best(numbers): return -1", tests) == 0.0


@pytest.mark.parametrize(
    ("value", "literal", "is_equal"),
    [
        ("{1: 'a', 2: [None, (1.0, True)]}", "{2: [None, (1, 1)], 1: 'a'}", True),
        ("{3, 1, 2}", "{1, 2, 3}", True),
        ("(1, 2)", "[1, 2]", False),
        ("'1'", "1", False),
        ("0.1 + 0.2", "0.3", False),
        ("-0.0", "0", True),
        ("b'ab'", "b'ab'", True),
        ("10**400", "1e400", False),
        ("__import__('collections').Counter('aab')", "{'a': 2, 'b': 1}", True),
        ("'é\\ud800'", "'é\\ud800'", True),
    ],
)
def test_values_are_equal_where_pythons_are(
    graded: Graded, value: str, literal: str, is_equal: bool
) -> None:
    assert graded(f"def f(): return {value}", f"assert f() == {literal}") == float(is_equal)


@pytest.mark.parametrize(
    "program",
    [
        "a, b = map(int, input().split())\nprint(a + b)",
        "import sys\nprint(sum(map(int, sys.stdin.read().split())), '  ')\nsys.exit(0)",
        "import sys\nsys.stdout.write(str(sum(map(int, open(0).read().split()))))",
        "import sys\nprint(sum(map(int, sys.stdin.buffer.read().split())))",
        "if __name__ == '__main__':\n    print(sum(int(n) for n in input().split()))\nexit()",
    ],
)
def test_programs_read_input_and_write_output(graded: Graded, program: str) -> None:
    assert graded(program, ADDS) == 1.0
    assert graded(program, {"inputs": ["1 1", "2 2"], "outputs": ["2", "5"]}) == 0.5


TO_PASS = ["assert f(2) == 4", "assert f(3) == 9"]


@pytest.mark.parametrize(
    "code",
    [
        "import sys\nsys.exit(0)",
        "import os\nos._exit(0)",
        "raise SystemExit",
        "print('OK')\nprint('2 passed')",
        "class Any:\n    __eq__ = lambda *_: True\n    __hash__ = None\nf = lambda n: Any()",
        "class Any(int):\n    __eq__ = lambda *_: True\nf = lambda n: Any()",
        "import builtins\nbuiltins.eval = lambda *_: 4\nbuiltins.bool = lambda *_: True",
        "import sys\nsys.modules['unit_tests'].canonical = lambda *_: '1'\nf = lambda n: 0",
        "import sys\nsys.modules['runner']._dumps = lambda _: '{\"rows\": [true, true]}'",
        "f = lambda n: (_ for _ in ()).throw(SystemExit(0))",
        "import sys\n"
        "def f(n):\n"
        "    frame = sys._getframe()\n"
        "    while frame:\n"
        "        for value in list(frame.f_locals.values()):\n"
        "            if value in (4, 9, '0x4', '0x9'):\n"
        "                return value\n"
        "        frame = frame.f_back\n",
        "while True: pass",
        "f = lambda n: f(n)",
        "f = lambda n: 'x' * 10**10",
    ],
    ids=range(14),
)
def test_code_that_is_not_a_solution_scores_nothing(graded: Graded, code: str) -> None:
    assert graded(code, TO_PASS) == 0.0
    assert graded("f = lambda n: n * n", TO_PASS) == 1.0


@pytest.mark.parametrize(
    "program",
    [
        "print(input.__globals__)",
        "import sys\nprint(sys._getframe().f_back.f_locals)",
        "x" * 70_000,
    ],
    ids=["globals", "frames", "too long"],
)
def test_programs_do_not_find_the_output_that_is_wanted(graded: Graded, program: str) -> None:
    assert graded(program, [{"input": "", "output": "a secret"}]) == 0.0


@pytest.mark.parametrize(
    ("tests", "wanted"),
    [
        (None, "holds null, which is neither"),
        ([], "holds a list, which is neither"),
        ([{"input": 1}], "which is neither"),
        ("assert (", "cannot be read: SyntaxError"),
        ("assert f(1) == 1\n" * 201, "holds 201 tests; 1 to 200 can be run"),
    ],
)
def test_tests_that_cannot_be_run_leave_it_ungraded(
    graded: Graded, tests: Any, wanted: str
) -> None:
    with pytest.raises(GraderError) as caught:
        graded(RIGHT, tests)
    assert str(caught.value).startswith("invalid_variable_error: column 'tests'")
    assert wanted in str(caught.value)


def test_a_row_without_tests_is_named() -> None:
    sample, services = Sample("x", {}), Services(sandboxes=object())  # type: ignore[arg-type]
    with pytest.raises(GraderError, match="the row has no column 'unit_tests'"):
        asyncio.run(Code("c", 1.0, "unit_tests").score_with(sample, services))


def test_a_list_names_it_code() -> None:
    [grader] = parse_graders([{"type": "code", "tests": "test_list", "scoring": "all"}])
    assert grader == Code("code", 1.0, "test_list", "all")
