"""Which columns are the prompt, the answer, …: proposed from a row's keys, or a person's choice.

A mapping is {role: path}; a path is a column, or a dotted way into one (`reward_model.gold`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

CHAT_COLUMNS = ("messages", "conversations", "conversation")
PROMPT_COLUMNS = ("messages", "prompt", "question", "problem", "instruction", *CHAT_COLUMNS[1:])
_OTHER_PROMPTS = ("query", "input", "problem_statement")
_ANSWERS = (
    *("answer", "reward_model.ground_truth", "ground_truth", "final_answer", "expected_answer"),
    *("gold", "gold_answer", "reference_answer", "ideal"),
)
_TITLES = ("title", "name", "id")
_TEXTS = ("text", "contents", "content", "body", "passage")
NUMBERED = ["column 1", "column 2"]  # of a table without a header
MISSING = object()


@dataclass(frozen=True)
class Proposal:
    """Roles with their paths. notes: what a person should know about how it was found."""

    paths: dict[str, str]
    notes: tuple[str, ...] = field(default=())


def value_at(row: Mapping[str, Any], path: str) -> Any:
    """What stands at a path, a column of that very name first; MISSING if nothing does."""
    if path in row:
        return row[path]
    value: Any = row
    for part in path.split("."):
        if not isinstance(value, dict) or part not in value:
            return MISSING
        value = value[part]
    return value


def column_of(row: Mapping[str, Any], path: str) -> str:
    """The column that a path begins with."""
    return path if path in row else path.partition(".")[0]


def propose(row: Mapping[str, Any], kind: str) -> Proposal | None:
    """What a row's keys suggest, upper and lower case apart; None if nothing."""
    if kind == "corpus":
        return _document(row)
    if list(row) == NUMBERED:
        note = "Of two columns without names the first is taken as prompt, the second as answer."
        return Proposal({"prompt": NUMBERED[0], "answer": NUMBERED[1]}, (note,))
    prompt = _first(row, (*PROMPT_COLUMNS, *_OTHER_PROMPTS))
    if not prompt:
        return None
    if prompt == "instruction" and ("output" in row or "input" in row):
        return _alpaca(row)
    answer = _answer(row, prompt)
    paths = {"prompt": prompt, **({"answer": answer} if answer else {})}
    notes = []
    if answer and answer != "answer":
        notes.append(f"The answer is taken from '{answer}'.")
    if prompt not in PROMPT_COLUMNS:
        notes.append(f"The prompt is taken from '{prompt}'.")
    return Proposal(paths, tuple(notes))


def _document(row: Mapping[str, Any]) -> Proposal | None:
    title, text = _first(row, _TITLES), _first(row, _TEXTS)
    if not title or not text:
        return None
    found = {"title": title, "text": text}
    notes = [f"The {role} is taken from '{path}'." for role, path in found.items() if path != role]
    return Proposal(found, tuple(notes))


def _answer(row: Mapping[str, Any], prompt: str) -> str:
    """The column of the answer; under another name only if something stands there that can be."""
    for name in _ANSWERS:
        found = _first(row, (name,))
        if found == "answer":
            return found
        if found and found != prompt and _can_be_answer(value_at(row, found)):
            return found
    return ""


def _can_be_answer(value: Any) -> bool:
    return isinstance(value, (str, int, float)) and not isinstance(value, bool)


def _alpaca(row: Mapping[str, Any]) -> Proposal:
    paths = {"prompt": "instruction"}
    paths |= {"input": "input"} if "input" in row else {}
    paths |= {"system": "system"} if "system" in row else {}
    paths |= {"answer": "output"} if "output" in row else {}
    return Proposal(paths, ("Alpaca format detected: instruction and input make the prompt.",))


def _first(row: Mapping[str, Any], paths: tuple[str, ...]) -> str:
    """The first of these that the row has, as the row writes it; "" if it has none."""
    exact = next((path for path in paths if value_at(row, path) is not MISSING), "")
    if exact:
        return exact
    columns = {column.strip().lower(): column for column in row}
    return next((columns[path] for path in paths if path in columns), "")


def lacking(row: Mapping[str, Any], kind: str) -> str:
    """The sentence for a row that no mapping was found for."""
    columns = ", ".join(repr(name[:40]) for name in list(row)[:20]) or "none"
    needed = (
        "'title' and 'text'"
        if kind == "corpus"
        else "a prompt ('messages', 'prompt', 'question', …)"
    )
    for name, value in list(row.items())[:20]:
        if isinstance(value, list) and value and isinstance(value[0], dict):
            return f"Needs {needed}; are its rows in {name[:40]!r}? Then save that list by itself."
    return f"Needs {needed}; its columns are {columns}. Say in the mapping which column is which."
