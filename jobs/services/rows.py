"""One uploaded row to one stored row: a chat and the other columns, or a sentence about the fault.

A row brings its prompt as `messages` (chat), as `prompt` (text or chat), or as `question` (text);
stored rows have `messages`. The first row settles for the file which of these it is, and whether
there is an `answer`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from engine.parameters import shown

PROMPT_COLUMNS = ("messages", "prompt", "question")
ROLES = ("system", "user", "assistant")
MAX_MESSAGES = 100
MAX_COLUMNS = 100
MAX_COLUMN_CHARACTERS = 100


@dataclass(frozen=True)
class Shape:
    """What the first row settles for all."""

    line: int  # of the first row
    prompt_column: str
    has_answer: bool


def shape_of(row: dict[str, Any], line: int) -> Shape:
    """The shape that a first row sets. Raises: ValueError if it has no prompt."""
    columns = [column for column in PROMPT_COLUMNS if column in row]
    if not columns:
        if "conversations" in row:
            raise ValueError(
                "'conversations' looks like ShareGPT: rename it to 'messages', its 'from' to"
                " 'role' (user, assistant, system) and its 'value' to 'content'."
            )
        raise ValueError("Needs a column 'messages', 'prompt' or 'question'.")
    return Shape(line, columns[0], "answer" in row)


def stored_row(row: Any, shape: Shape) -> dict[str, Any]:
    """The row as it is stored. Raises: ValueError with a full sentence."""
    _check_columns(row, shape)
    prompt = row[shape.prompt_column]
    if isinstance(prompt, str) and shape.prompt_column != "messages":
        prompt = [{"role": "user", "content": prompt}]
    messages = checked_messages(prompt, shape.prompt_column)
    if "answer" in row:
        _check_answer(row["answer"])
    rest = {key: value for key, value in row.items() if key != shape.prompt_column}
    return {"messages": messages, **rest}


def _check_columns(row: dict[str, Any], shape: Shape) -> None:
    if shape.prompt_column not in row:
        others = [column for column in PROMPT_COLUMNS if column in row]
        instead = f" It has '{others[0]}' instead." if others else ""
        raise ValueError(f"Lacks '{shape.prompt_column}', which line {shape.line} has.{instead}")
    if shape.has_answer and "answer" not in row:
        raise ValueError(f"Lacks 'answer', which line {shape.line} has.")
    if shape.prompt_column != "messages" and "messages" in row:
        raise ValueError(f"Has both 'messages' and '{shape.prompt_column}'; keep one.")
    if len(row) > MAX_COLUMNS:
        raise ValueError(f"Has {len(row)} columns; at most {MAX_COLUMNS} are allowed.")
    for column in row:
        if not column or len(column) > MAX_COLUMN_CHARACTERS or not column.isprintable():
            raise ValueError(
                f"The column name {shown(column)} must have 1 to {MAX_COLUMN_CHARACTERS}"
                " printable characters."
            )


def _check_answer(answer: Any) -> None:
    if isinstance(answer, bool) or not isinstance(answer, (str, int, float)):
        raise ValueError(f"'answer' must be text or a number, not {shown(answer)}.")


def checked_messages(messages: Any, column: str) -> list[dict[str, str]]:
    """A chat that ends with a user's message. Raises: ValueError with a full sentence."""
    if not isinstance(messages, list) or not 1 <= len(messages) <= MAX_MESSAGES:
        what = shown(messages) if not isinstance(messages, list) else f"{len(messages)} of them"
        raise ValueError(f"'{column}' must be a list of 1 to {MAX_MESSAGES} messages, not {what}.")
    for place, message in enumerate(messages):
        _check_message(message, place, f"{column}[{place}]")
    if messages[-1]["role"] != "user":
        raise ValueError(
            f"The last of '{column}' must be the user's, because the policy answers it;"
            f" it is the {messages[-1]['role']}'s."
        )
    return messages


def _check_message(message: Any, place: int, path: str) -> None:
    if not isinstance(message, dict):
        raise ValueError(f"{path} must be an object with role and content, not {shown(message)}.")
    for key in ("role", "content"):
        if key not in message:
            raise ValueError(f"{path} lacks '{key}'.")
    role, content = message["role"], message["content"]
    if role not in ROLES:
        raise ValueError(f"{path}.role must be one of {', '.join(ROLES)}, not {shown(role)}.")
    if role == "system" and place > 0:
        raise ValueError(f"{path}: a system message must be the first.")
    if not isinstance(content, str):
        raise ValueError(f"{path}.content must be text, not {shown(content)}.")
    if not content.strip():
        raise ValueError(f"{path}.content is empty.")
    if extra := set(message) - {"role", "content"}:
        raise ValueError(f"{path} has {shown(sorted(extra)[0])}; only role and content are used.")
