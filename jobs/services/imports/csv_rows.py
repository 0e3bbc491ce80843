"""CSV and TSV as RFC 4180 has them: cells stay text exactly as written; a record may span lines.

Never shifted, never padded: a record with another number of cells than the header is a bad row.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator

from engine.parameters import shown

from .records import MAX_RECORD_BYTES, Record, fatal_at
from .text import text_lines

MAX_COLUMNS = 200
csv.field_size_limit(MAX_RECORD_BYTES)  # of the process; its default is 128 KiB


def rows_of_table(
    pieces: Iterator[str], delimiter: str, *, has_header: bool = True, cut: bool = False
) -> Iterator[Record]:
    """The rows, with the physical line where each begins. Raises: DatasetError."""
    table = _Table(pieces, delimiter, cut)
    names: list[str] = []
    for number, cells in table.records():
        if not names:
            names = _header(number, cells) if has_header else _numbered(cells)
            if has_header:
                continue
        yield _record(number, names, cells)


class _Table:
    """Records of cells with the line where each begins; a quote that never ends ends the file."""

    def __init__(self, pieces: Iterator[str], delimiter: str, cut: bool) -> None:
        self._lines = text_lines(pieces)
        self._cut = cut
        self._line = self._begin = self._size = 0
        self._ends = True
        self._reader = csv.reader(self._physical(), delimiter=delimiter, strict=True)

    def _physical(self) -> Iterator[str]:
        for number, line, is_whole, ends in self._lines:
            self._line, self._ends = number, ends
            self._begin = self._begin or number
            self._size += len(line)
            if not is_whole or self._size > MAX_RECORD_BYTES:
                raise fatal_at(
                    self._begin,
                    f"The row that begins here is longer than {MAX_RECORD_BYTES // 2**20} MiB;"
                    ' is a quote (") opened and not closed?',
                )
            yield f"{line}\n" if ends else line

    def records(self) -> Iterator[tuple[int, list[str]]]:
        """(line, cells); blank lines are passed over."""
        while True:
            self._begin = self._size = 0
            try:
                cells = next(self._reader)
            except StopIteration:
                return
            except csv.Error as error:
                if self._cut and not self._ends:
                    return
                raise fatal_at(self._begin or self._line, _told(error, self._line)) from None
            if self._cut and not self._ends:
                return
            if cells and cells != [""]:
                yield self._begin, cells


def _told(error: csv.Error, line: int) -> str:
    text = str(error)
    if "unexpected end of data" in text:
        return 'A quote (") opened in this row is never closed; the upload may be truncated.'
    if "expected after" in text:
        return (
            f"In line {line} text follows a closing quote; write a quote inside a cell twice, and"
            " choose the right separator."
        )
    if "new-line character" in text:
        return f"Line {line} holds a carriage return by itself; end lines with a line feed."
    return f"Not CSV: {text}."


def _header(number: int, cells: list[str]) -> list[str]:
    names = [cell.strip() or f"column {place}" for place, cell in enumerate(cells, start=1)]
    if len(names) > MAX_COLUMNS:
        raise fatal_at(number, f"Has {len(names):,} columns; at most {MAX_COLUMNS} are allowed.")
    repeated = {name for name in names if names.count(name) > 1}
    if repeated:
        raise fatal_at(number, f"The column {shown(min(repeated))} comes twice in the header.")
    return names


def _numbered(cells: list[str]) -> list[str]:
    return [f"column {place}" for place in range(1, len(cells) + 1)]


def _record(number: int, names: list[str], cells: list[str]) -> Record:
    if len(cells) != len(names):
        has = "1 cell" if len(cells) == 1 else f"{len(cells)} cells"
        return Record(number, problem=f"Has {has}; the header has {len(names)} columns.")
    if any("\0" in cell for cell in cells):
        return Record(number, problem="Text must not contain the character NUL (\\u0000).")
    return Record(number, dict(zip(names, cells, strict=True)))
