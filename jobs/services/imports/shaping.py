"""One row of a file to one stored row: a chat and the other columns, or a sentence about the fault.

The first row that a mapping fits settles for the file which column is the prompt, and whether there
is an answer; what a person chose is kept, and the rest is found as if nothing were chosen.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from engine.parameters import shown
from jobs import strict_json

from .chats import Chat, read_chat
from .columns import MAX_COLUMNS as MAX_NAMES
from .json_rows import told
from .mapping import (
    CHAT_COLUMNS,
    MISSING,
    PROMPT_COLUMNS,
    column_of,
    lacking,
    no_column,
    propose,
    value_at,
)

MAX_COLUMNS = 100
REQUIRED_ROLES = ("prompt", "answer", "title", "text")  # the others may be absent from a row
MAX_COLUMN_CHARACTERS = 100
_CHAT_STARTS = ('[{"role"', '[{"from"', "[{'role'")  # of a chat in a cell of text
LONG_CHARACTERS = 1_000_000  # about 250,000 tokens: more than most models take


@dataclass
class Shaped:
    """A stored row, with what was changed to make it."""

    row: dict[str, Any]
    notes: list[str] = field(default_factory=list)


class Shaper:
    """Makes stored rows of one file. chosen: a person's mapping; roles that it lacks are found."""

    def __init__(self, kind: str, chosen: Mapping[str, str]) -> None:
        self.kind = kind
        self.chosen = dict(chosen)
        self.mapping = dict(chosen)
        self.notes: tuple[str, ...] = ()
        self._line = 0  # of the row that settled it
        self._unseen = dict(chosen)  # of the columns that were chosen, those in no row so far
        self._names: dict[str, None] = {}  # columns seen while there are such

    def look(self, row: Mapping[str, Any]) -> None:
        """Note which of the chosen columns there are."""
        if self._unseen:
            self._unseen = {
                role: path for role, path in self._unseen.items() if value_at(row, path) is MISSING
            }
            if len(self._names) < MAX_NAMES:
                self._names.update(dict.fromkeys(row))

    @property
    def unknown_column(self) -> str:
        """A sentence if a chosen column is in none of the rows looked at; else ""."""
        if not self._unseen or not self._names:
            return ""
        return no_column(next(iter(self._unseen.values())), list(self._names))

    def fits(self, row: Mapping[str, Any]) -> bool:
        """Whether it is settled, or this row would settle it."""
        return bool(self._line) or propose(row, self.kind, self.chosen) is not None

    def shape(self, row: dict[str, Any], line: int) -> Shaped:
        """The stored row of one whose columns were checked. Raises: ValueError."""
        if not self._line:
            self._settle(row, line)
        return self._document(row) if self.kind == "corpus" else self._prompt(row)

    def _settle(self, row: dict[str, Any], line: int) -> None:
        for role in REQUIRED_ROLES:
            if role in self.chosen and value_at(row, self.chosen[role]) is MISSING:
                raise ValueError(self._lacks_chosen(role))
        found = propose(row, self.kind, self.chosen)
        if found is None:
            raise ValueError(lacking(row, self.kind))
        self.mapping, self.notes, self._line = found.paths, found.notes, line

    def _prompt(self, row: dict[str, Any]) -> Shaped:
        path = self.mapping.get("prompt", "messages")
        value = value_at(row, path)
        if value is MISSING:
            raise ValueError(self._lacks(row, path))
        is_free = "prompt" not in self.chosen and "messages" not in self.chosen.values()
        if is_free and path != "messages" and "messages" in row:
            raise ValueError(f"Has both 'messages' and '{path}'; keep one.")
        chat = self._chat(value, path, row)
        shaped = Shaped({"messages": chat.messages}, chat.notes)
        self._add_answer(shaped, row, chat)
        used = {column_of(row, path)} if path in row else set()
        used |= {
            self.mapping[role] for role in ("input", "system") if self.mapping.get(role) in row
        }
        used |= {"answer"} if self.mapping.get("answer") == "answer" else set()
        self._add_rest(shaped, {key: row[key] for key in row if key not in used})
        if sum(len(message["content"] or "") for message in chat.messages) > LONG_CHARACTERS:
            shaped.notes.append(
                f"the prompt has over {LONG_CHARACTERS:,} characters, more than most models take"
            )
        return shaped

    def _lacks(self, row: dict[str, Any], path: str) -> str:
        if "prompt" in self.chosen:
            return self._lacks_chosen("prompt")
        others = [name for name in PROMPT_COLUMNS if name in row]
        instead = f" It has '{others[0]}' instead." if others else ""
        return f"Lacks '{path}', which line {self._line} has.{instead}"

    def _lacks_chosen(self, role: str) -> str:
        return f"Lacks '{self.chosen[role]}', the column chosen for the {role}."

    def _chat(self, value: Any, path: str, row: dict[str, Any]) -> Chat:
        if isinstance(value, str) and (
            value.lstrip().startswith(("[", "{") if path.lower() in CHAT_COLUMNS else _CHAT_STARTS)
        ):
            chat = read_chat(_parsed(value, path), path)
        elif isinstance(value, str) and path.lower() not in CHAT_COLUMNS:
            chat = Chat([{"role": "user", "content": self._joined(value, path, row)}])
        else:
            chat = read_chat(value, path)
        system = self._text(row, "system")
        if system and chat.messages[0]["role"] != "system":
            chat.messages.insert(0, {"role": "system", "content": system})
        return chat

    def _joined(self, prompt: str, path: str, row: dict[str, Any]) -> str:
        if not prompt.strip():
            raise ValueError(f"'{path}' is empty.")
        more = self._text(row, "input")
        return f"{prompt}\n\n{more}" if more else prompt

    def _text(self, row: dict[str, Any], role: str) -> str:
        """The text of an optional role; "" if there is none."""
        value = value_at(row, self.mapping[role]) if role in self.mapping else ""
        if value is MISSING or value is None:
            return ""
        if not isinstance(value, str):
            raise ValueError(f"'{self.mapping[role]}' must be text, not {shown(value)}.")
        return value if value.strip() else ""

    def _add_answer(self, shaped: Shaped, row: dict[str, Any], chat: Chat) -> None:
        if path := self.mapping.get("answer"):
            value = value_at(row, path)
            if value is MISSING:
                if "answer" in self.chosen:
                    raise ValueError(self._lacks_chosen("answer"))
                raise ValueError(f"Lacks '{path}', which line {self._line} has.")
            _check_answer(value, path)
            shaped.row["answer"] = value
            if chat.completion:
                shaped.row["completion"] = chat.completion
        elif "answer" in row:
            _check_answer(row["answer"], "answer")
        elif chat.completion:
            shaped.row["answer"] = chat.completion

    def _add_rest(self, shaped: Shaped, rest: dict[str, Any]) -> None:
        """The other columns; one whose name is taken keeps its value under another name."""
        for name, value in rest.items():
            if name in shaped.row:
                shaped.notes.append(f"the file's column '{name}' stored as '{name} (file)'")
                name = f"{name} (file)"
            shaped.row[name] = value

    def _document(self, row: dict[str, Any]) -> Shaped:
        found: dict[str, Any] = {}
        for role in ("title", "text"):
            path = self.mapping.get(role, role)
            value = value_at(row, path)
            if not isinstance(value, str) or not value.strip():
                what = "lacks" if value is MISSING else f"must have text, not {shown(value)}, in"
                raise ValueError(f"A document {what} '{path}'.")
            found[role] = value
        used = {self.mapping.get(role, role) for role in ("title", "text")}
        shaped = Shaped(found)
        self._add_rest(shaped, {key: row[key] for key in row if key not in used})
        return shaped


def check_columns(row: dict[str, Any]) -> None:
    """Raises: ValueError if a row has too many columns, or names that cannot be shown."""
    if len(row) > MAX_COLUMNS:
        raise ValueError(f"Has {len(row)} columns; at most {MAX_COLUMNS} are allowed.")
    for column in row:
        if not column or len(column) > MAX_COLUMN_CHARACTERS or not column.isprintable():
            raise ValueError(
                f"The column name {shown(column)} must have 1 to {MAX_COLUMN_CHARACTERS}"
                " printable characters."
            )


def _check_answer(answer: Any, path: str) -> None:
    if isinstance(answer, bool) or not isinstance(answer, (str, int, float)):
        raise ValueError(f"'{path}' must be text or a number, not {shown(answer)}.")
    if isinstance(answer, str) and not answer.strip():
        raise ValueError(f"'{path}' is empty.")


def _parsed(text: str, path: str) -> Any:
    """The chat that a cell holds as JSON; never evaluated. Raises: ValueError."""
    try:
        return strict_json.loads(text)
    except strict_json.JSONProblem as error:
        quotes = (
            " Python's single quotes are not JSON; write the cell with json.dumps."
            if text.lstrip().startswith(("[{'", "{'"))
            else ""
        )
        raise ValueError(f"'{path}' must hold a chat as JSON: {told(error)}{quotes}") from None
