"""What comes back from a sandbox, and reading it. Nothing that a guest says is believed.

A guest's interpreter is the tenant's to patch, so an answer is bounded before it is parsed, has to
have exactly the asked-for shape, and holds only finite numbers and cut text.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import Any

LARGEST_SCORE = 1e6
CODES = ("python_grader_runtime_error", "invalid_variable_error")
RUNTIME, UNRESPONSIVE, SERVER = (
    "python_grader_runtime_error",
    "unresponsive_reward_error",
    "python_grader_server_error",
)


@dataclass(frozen=True)
class Score:
    """Of one completion; None: ungraded, and `error` says why under OpenAI's name for it."""

    value: float | None
    error: str = ""
    line: int | None = None  # of the source, where one is to blame


@dataclass(frozen=True)
class Value:
    """What our own harness found out, as plain JSON, or why nothing. Untrusted all the same."""

    value: Any
    error: str = ""


@dataclass(frozen=True)
class Trial:
    """Scores, and what was printed on the way."""

    scores: list[Score]
    output: str = ""


@dataclass(frozen=True)
class Problem:
    """What is wrong with a source, for the editor."""

    message: str
    line: int | None = None


@dataclass(frozen=True)
class Execution:
    """One turn of the python tool."""

    output: str
    error: str = ""
    line: int | None = None
    is_restarted: bool = False  # the variables of earlier turns are gone


def parsed(text: str) -> Any:
    """A guest's JSON. Raises: ValueError whatever is wrong with it."""
    try:
        return json.loads(text, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"the answer cannot be read: {str(error)[:100]}") from None


def rows_of(text: str, num_rows: int) -> tuple[list[Any], str]:
    """Entries of an answer to a batch, and what was printed. Raises: ValueError."""
    answer = parsed(text)
    rows = answer.get("rows") if isinstance(answer, dict) else None
    if not isinstance(rows, list) or len(rows) != num_rows:
        raise ValueError(f"the answer is not a list of {num_rows} results")
    output = answer.get("output")
    return rows, output if isinstance(output, str) else ""


def score_of(entry: Any, num_characters: int) -> Score:
    """A guest's entry: a finite number, or what it says is wrong."""
    if isinstance(entry, dict):
        return _wrong(entry, num_characters)
    if isinstance(entry, bool) or not isinstance(entry, (int, float)):
        return Score(None, f"{RUNTIME}: the result is not a number")
    try:
        number = float(entry)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        return Score(None, f"{RUNTIME}: the result is not a finite number")
    return Score(max(-LARGEST_SCORE, min(LARGEST_SCORE, number)))


def problem_of(text: str, num_characters: int) -> Score | None:
    """What an answer to `load` says is wrong. Raises: ValueError."""
    entry = parsed(text)
    if not isinstance(entry, dict):
        raise ValueError("the answer is not an object")
    return _wrong(entry, num_characters) if entry else None


def execution_of(text: str, num_characters: int, is_restarted: bool, error_size: int) -> Execution:
    """An answer to `execute`. Raises: ValueError."""
    entry = parsed(text)
    if not isinstance(entry, dict) or not isinstance(entry.get("output"), str):
        raise ValueError("the answer is not an object with output")
    wrong = _wrong(entry, error_size) if "error" in entry else Score(None)
    error = wrong.error.removeprefix(f"{RUNTIME}: ")
    return Execution(entry["output"][:num_characters], error, wrong.line, is_restarted)


def _wrong(entry: dict[str, Any], num_characters: int) -> Score:
    code, text, line = entry.get("code"), entry.get("error"), entry.get("line")
    code = code if code in CODES else RUNTIME
    text = text if isinstance(text, str) else "the function failed"
    is_line = isinstance(line, int) and not isinstance(line, bool) and 0 < line < 1_000_000
    return Score(None, f"{code}: {text}"[:num_characters], line if is_line else None)


def _refuse_constant(name: str) -> None:
    raise ValueError(f"it holds {name}")
