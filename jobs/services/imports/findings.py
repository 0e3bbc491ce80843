"""What an import has to tell: bad rows by line, and warnings gathered over all rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from engine.errors import DatasetError

from .prompts import MAX_TOLD, places

MAX_LISTED = 100  # bad lines told one by one
MAX_COUNTED = 10_000  # bad lines after which the rest is not looked at
MAX_NOTES = 50  # different ones
MAX_WARNING_CHARACTERS = 400
MAX_RUNS = 12  # of line numbers told for one message


class Findings:
    """Collects faults and notes. unit: what rows are numbered by, `line` or `row`."""

    def __init__(self, unit: str) -> None:
        self.unit = unit
        self.bad_lines: list[tuple[int, str]] = []
        self.num_bad_lines = 0
        self._notes: dict[str, tuple[int, list[int]]] = {}

    def refuse(self, number: int, message: str) -> None:
        """A row is bad."""
        self.num_bad_lines += 1
        if len(self.bad_lines) < MAX_LISTED:
            self.bad_lines.append((number, message))

    @property
    def is_flooded(self) -> bool:
        """Whether there is no use in reading on."""
        return self.num_bad_lines >= MAX_COUNTED

    def note(self, what: str, number: int) -> None:
        """A row was changed, or may cause trouble; `what` is a phrase that many rows share."""
        if what not in self._notes and len(self._notes) == MAX_NOTES:
            return
        count, lines = self._notes.get(what, (0, []))
        if len(lines) < MAX_TOLD:
            lines.append(number)
        self._notes[what] = (count + 1, lines)

    def notes(self) -> list[str]:
        """A sentence for each note, with the first lines it is about."""
        return [
            f"{what[:1].upper()}{what[1:]} ({places(self.unit, lines, count)})."
            for what, (count, lines) in self._notes.items()
        ]

    def warnings(self) -> list[str]:
        """A sentence for each note, and one for the rows left out."""
        found = self.notes()
        if self.num_bad_lines:
            rows = "row was" if self.num_bad_lines == 1 else "rows were"
            lines = [line for line, _ in self.bad_lines[:MAX_TOLD]]
            where = places(self.unit, lines, self.num_bad_lines)
            found.append(f"{self.num_bad_lines:,} {rows} left out ({where}).")
        return [text[:MAX_WARNING_CHARACTERS] for text in found]

    def error(self) -> DatasetError:
        """All bad lines as one error."""
        number, message = self.bad_lines[0]
        unit = self.unit
        if self.num_bad_lines == 1:
            text = f"{unit.capitalize()} {number}: {message}"
        else:
            more = " or more" if self.is_flooded else ""
            text = (
                f"{self.num_bad_lines:,}{more} {unit}s are wrong;"
                f" the first is {unit} {number}: {message}"
            )
        return DatasetError(text, self.bad_lines, self.num_bad_lines)


def grouped_lines(lines: Sequence[Sequence[Any]]) -> list[tuple[str, str]]:
    """(line, message), …, as ("2–61", message) for each different message, in order.

    static/js/dataset_parts.js does the same.
    """
    groups: dict[str, list[int]] = {}
    for line, message in lines:
        groups.setdefault(message, []).append(line)
    return [(_runs(numbers), message) for message, numbers in groups.items()]


def _runs(numbers: list[int]) -> str:
    """Numbers with those that follow one another as one; 0 is the whole file."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    told = [f"{a:,}" if a == b else f"{a:,}–{b:,}" for a, b in runs[:MAX_RUNS]]
    left = sum(b - a + 1 for a, b in runs[MAX_RUNS:])
    text = ", ".join(told) + (f" and {left:,} more" if left else "")
    return text if numbers != [0] else "whole file"
