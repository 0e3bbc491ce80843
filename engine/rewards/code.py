"""The completion's code passes the row's unit tests.

The code is the policy's, and a policy finds what is rewarded. What it cannot do: end the process,
print a verdict, or learn the expected value of `assert call == literal` and of an output, for these
are never in its interpreter and are compared out here. What it can: fool an assertion whose verdict
Python itself must give (`assert abs(f(2) - 1) < 0.1`, `check(candidate)`), by objects that compare
as they like or by patching our runner. So prefer literals and outputs.
"""

from __future__ import annotations

import contextlib
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..errors import GraderError
from ..parameters import parameter, shown
from .services import Sample, Services

if TYPE_CHECKING:
    from ..sandbox import Sandboxes

PLAN = "from unit_tests import plan as run"  # engine/sandbox/guest/unit_tests.py
RUN = "from unit_tests import run"
MAX_CODE_CHARACTERS = 65_536
MAX_TESTS = 200
MAX_TIMEOUTS = 2  # a loop in the first two tests is one in all
FENCE = "```"


@dataclass(frozen=True)
class Code:
    """The share of the row's unit tests that the completion's Python passes.

    The code is the last fenced block of the completion, or all of it. The tests are a column with
    Python that asserts, a list of assertions, or a list of {"input": text, "output": text}, where
    the program's output is compared line by line. Each runs for at most a second, in a sandbox.
    """

    name: str
    weight: float = 1.0
    tests: str = parameter("tests", "column with the tests")
    scoring: str = parameter(
        "share", "all: 1 if every test is passed, else 0", choices=("share", "all")
    )

    async def score_with(self, sample: Sample, services: Services) -> float:
        """0 … 1. Raises: GraderError if the row has no usable tests."""
        sandboxes: Sandboxes = services.need("sandboxes")
        tests = _tests_of(sample.row, self.tests)
        if isinstance(tests, str):
            checks = await self._planned(tests, sandboxes, services.tenant)
        else:
            checks = [({"input": given}, wanted) for given, wanted in tests]
        if not 0 < len(checks) <= MAX_TESTS:
            raise self._unusable(f"holds {len(checks)} tests; 1 to {MAX_TESTS} can be run")
        code = code_of(sample.completion)
        if len(code) > MAX_CODE_CHARACTERS:
            return 0.0
        calls = [{"code": code, **call} for call, _ in checks]
        limit = 1 if self.scoring == "all" else MAX_TIMEOUTS
        values = await sandboxes.values(services.tenant, RUN, calls, max_traps=limit)
        for value in values:
            if value.error.startswith("python_grader_server_error"):
                raise GraderError(value.error)
        pairs = zip(values, checks, strict=True)
        num_passed = sum(_is_same(value.value, call, wanted) for value, (call, wanted) in pairs)
        return (
            float(num_passed == len(checks)) if self.scoring == "all" else num_passed / len(checks)
        )

    async def _planned(
        self, tests: str, sandboxes: Sandboxes, tenant: str
    ) -> list[tuple[dict[str, Any], str]]:
        """Each check's call, and the value that is wanted of it."""
        [found] = await sandboxes.values(tenant, PLAN, [{"tests": tests}], is_kept=True)
        if found.error.startswith("python_grader_server_error"):
            raise GraderError(found.error)
        if found.error:
            raise self._unusable(f"cannot be read: {found.error.partition(': ')[2]}")
        setup, checks = found.value["setup"], found.value["checks"]
        return [
            ({"setup": "\n".join(setup[:num_before]), "expression": expression}, wanted)
            for num_before, expression, wanted in checks
        ]

    def _unusable(self, what: str) -> GraderError:
        return GraderError(f"invalid_variable_error: column {shown(self.tests)} {what}")


def code_of(completion: str) -> str:
    """The last fenced block that has an end, or one that lacks it, or the whole text."""
    block: list[str] | None = None
    found: list[str] | None = None
    for line in completion.splitlines():
        if not line.lstrip().startswith(FENCE):
            if block is not None:
                block.append(line)
        elif block is None:
            block = []
        else:
            found, block = block, None
    chosen = found if found is not None else block
    return completion if chosen is None else "\n".join(chosen)


def _tests_of(row: Any, column: str) -> str | list[tuple[str, str]]:
    """Python that asserts, or inputs with their outputs. Raises: GraderError."""
    if column not in row:
        raise GraderError(f"invalid_variable_error: the row has no column {shown(column)}")
    tests = row[column]
    if isinstance(tests, str) and tests.lstrip()[:1] in ("[", "{"):
        with contextlib.suppress(ValueError, RecursionError):
            tests = json.loads(tests)  # as many datasets keep them
    if isinstance(tests, dict) and isinstance(tests.get("inputs"), list):
        pairs = zip(tests["inputs"], tests.get("outputs") or [], strict=False)
        tests = [{"input": given, "output": wanted} for given, wanted in pairs]
    if isinstance(tests, str):
        return tests
    if isinstance(tests, list) and tests and all(isinstance(test, str) for test in tests):
        return "\n".join(tests)
    if isinstance(tests, list) and tests and all(_is_pair(test) for test in tests):
        return [(test["input"], test["output"]) for test in tests]
    raise GraderError(
        f"invalid_variable_error: column {shown(column)} holds {shown(tests)}, which is neither"
        ' Python that asserts nor a list of {"input": text, "output": text}'
    )


def _is_pair(test: Any) -> bool:
    keys = ("input", "output")
    return isinstance(test, dict) and all(isinstance(test.get(key), str) for key in keys)


def _is_same(found: Any, call: dict[str, Any], wanted: str) -> bool:
    if not isinstance(found, str):
        return False
    return _lines(found) == _lines(wanted) if "input" in call else found == wanted


def _lines(text: str) -> list[str]:
    """Without white space at the ends of lines and of the text."""
    return [line.rstrip() for line in text.strip().splitlines()]
