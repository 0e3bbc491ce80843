"""What the columns of a file hold: in how many rows, of which types, each first at which line."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

MAX_COLUMNS = 300  # of a whole file, told apart; rows may differ in theirs
_TYPES = {str: "text", bool: "true/false", int: "number", float: "number", list: "list"}


@dataclass
class Column:
    """types: the first line of each."""

    num_rows: int = 0
    types: dict[str, int] = field(default_factory=dict)


class Columns:
    """Counts the columns of a file, row by row."""

    def __init__(self) -> None:
        self.found: dict[str, Column] = {}
        self.num_rows = 0

    def check(self, row: Mapping[str, Any]) -> None:
        """Raises: ValueError if with this row there were too many different columns."""
        if len(self.found) + sum(name not in self.found for name in row) > MAX_COLUMNS:
            raise ValueError(f"The file has more than {MAX_COLUMNS} different columns.")

    def add(self, row: Mapping[str, Any], line: int) -> None:
        """Count a row that was checked."""
        self.num_rows += 1
        for name, value in row.items():
            column = self.found.setdefault(name, Column())
            column.num_rows += 1
            column.types.setdefault(type_of(value), line)

    def warnings(self, unit: str) -> list[str]:
        """Columns of several types, and such as only some rows have."""
        found = []
        for name, column in self.found.items():
            types = {kind: line for kind, line in column.types.items() if kind != "null"}
            if len(types) > 1:
                mix = ", ".join(
                    f"{kind} (first in {unit} {line:,})" for kind, line in types.items()
                )
                found.append(f"Column '{name}' mixes {mix}.")
            if column.num_rows < self.num_rows:
                found.append(
                    f"Column '{name}' is present in {column.num_rows:,} of {self.num_rows:,} rows."
                )
        return found

    def to_json(self) -> list[dict[str, Any]]:
        """For a preview: name, rows, and {type: first line}."""
        return [
            {"name": name, "num_rows": column.num_rows, "types": column.types}
            for name, column in self.found.items()
        ]


def type_of(value: Any) -> str:
    """A JSON value's type, as a person calls it; numbers are one."""
    if value is None:
        return "null"
    return _TYPES.get(type(value), "object")
