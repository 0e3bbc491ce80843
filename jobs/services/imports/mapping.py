"""Which columns are the prompt, the answer, …: a person's choice, the rest found by a row's keys.

A mapping is {role: path}; a path is a column, or a dotted way into one (`reward_model.gold`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from engine.parameters import shown

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
_TOLD_COLUMNS = 15
_TOLD_CHARACTERS = 40


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


def propose(
    row: Mapping[str, Any], kind: str, chosen: Mapping[str, str] | None = None
) -> Proposal | None:
    """What was chosen, and for the other roles what the keys of the row suggest among the columns
    that are left, upper and lower case apart; None if that gives no prompt, or no document.
    """
    chosen = dict(chosen or {})
    left = {column: row[column] for column in row if column not in chosen.values()}
    if kind == "corpus":
        return _document(left, chosen)
    if list(row) == NUMBERED and not {"prompt", "answer"} <= set(chosen):
        return _of_two(left, chosen)
    prompt = chosen.get("prompt") or _first(left, (*PROMPT_COLUMNS, *_OTHER_PROMPTS))
    if not prompt:
        return None
    if prompt == "instruction" and ("output" in left or "input" in left):
        return _alpaca(left, chosen)
    answer = chosen.get("answer") or _answer(left, prompt)
    paths = {"prompt": prompt, **({"answer": answer} if answer else {}), **chosen}
    notes = []
    if answer not in ("", "answer", chosen.get("answer")):
        notes.append(f"The answer is taken from '{answer}'.")
    if prompt not in (*PROMPT_COLUMNS, chosen.get("prompt")):
        notes.append(f"The prompt is taken from '{prompt}'.")
    return Proposal(paths, tuple(notes))


def _document(left: Mapping[str, Any], chosen: Mapping[str, str]) -> Proposal | None:
    found = {"title": _first(left, _TITLES), "text": _first(left, _TEXTS), **chosen}
    if not all(found.values()):
        return None
    notes = [
        f"The {role} is taken from '{path}'."
        for role, path in found.items()
        if path != role and role not in chosen
    ]
    return Proposal(found, tuple(notes))


def _of_two(left: Mapping[str, Any], chosen: Mapping[str, str]) -> Proposal | None:
    """The columns of a table without a header: the prompt comes first."""
    free = [role for role in ("prompt", "answer") if role not in chosen]
    paths = {**dict(zip(free, left, strict=False)), **chosen}
    if "prompt" not in paths:
        return None
    if chosen:
        notes = [f"The {role} is taken from '{paths[role]}'." for role in free if role in paths]
    else:
        notes = ["Of two columns without names the first is taken as prompt, the second as answer."]
    return Proposal(paths, tuple(notes))


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


def _alpaca(left: Mapping[str, Any], chosen: Mapping[str, str]) -> Proposal:
    paths = {"prompt": "instruction"}
    paths |= {"input": "input"} if "input" in left else {}
    paths |= {"system": "system"} if "system" in left else {}
    paths |= {"answer": "output"} if "output" in left else {}
    return Proposal(
        {**paths, **chosen}, ("Alpaca format detected: instruction and input make the prompt.",)
    )


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
    return f"Needs {needed}; its columns are {columns}. Choose which column is which."


def no_column(path: str, columns: list[str]) -> str:
    """The sentence for a chosen column that the file does not have."""
    names = ", ".join(name[:_TOLD_CHARACTERS] for name in columns[:_TOLD_COLUMNS])
    more = len(columns) - _TOLD_COLUMNS
    rest = f" and {more:,} more" if more > 0 else ""
    return f"No column {shown(path)}; the columns are {names}{rest}. Choose one of them."
