"""JSON Lines and JSON arrays: each row by itself, read strictly, with the line where it begins."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from engine.parameters import shown
from jobs import strict_json

from .records import MAX_RECORD_BYTES, Record, fatal_at, whole_file
from .text import text_lines

_TOO_LONG = f"Is longer than {MAX_RECORD_BYTES // 2**20} MiB."
_ENDINGS = {  # what Python's reader says in mid-air, as it ends a message: its whole sentence
    "Unterminated string starting at.": 'the text that begins there has no closing quote (").',
    "Invalid control character at.": "inside a text stands a line break, tab or other control"
    " character; write it as \\n, \\t or \\u….",
    "Invalid \\escape.": "a backslash inside a text is written twice, or begins \\n, \\t, \\u….",
}
_OUTSIDE = re.compile(r'["\[\]{},]')


def lines_of_json(pieces: Iterator[str], *, cut: bool = False) -> Iterator[Record]:
    """The rows of JSON Lines. cut: the file is only a head, so its last line is left out."""
    is_first = True
    for number, line, is_whole, ends in text_lines(pieces):
        if not line.strip() and is_whole:
            continue
        if not ends and cut:
            return
        if is_first and ends and is_whole and _goes_on(line):
            raise fatal_at(
                number, "The object goes on in the next line; write each on one line, or all in []."
            )
        is_first = False
        yield _record(number, line, ends) if is_whole else Record(number, problem=_TOO_LONG)


def _goes_on(line: str) -> bool:
    """Whether a line begins an object that it does not end; else each line would be told."""
    try:
        strict_json.loads(line)
    except strict_json.JSONProblem as error:
        return line.lstrip().startswith("{") and error.column > len(line.rstrip())
    return False


def _record(number: int, line: str, ends: bool) -> Record:
    try:
        value, notes = loads(line)
    except strict_json.JSONProblem as error:
        return Record(number, problem=f"{told(error)}{_hint(line, ends)}")
    return of_object(number, value, notes)


def told(error: strict_json.JSONProblem) -> str:
    """What is wrong with a JSON text, in a whole sentence."""
    text = str(error)
    for ending, sentence in _ENDINGS.items():
        if text.endswith(f": {ending}"):
            return f"{text.removesuffix(ending)}{sentence}"
    return text


def of_object(number: int, value: Any, notes: tuple[str, ...] = ()) -> Record:
    """The record of a value that must be an object."""
    if not isinstance(value, dict):
        problem = f"Must be an object such as {{…}}, not {shown(value)}."
        return Record(number, problem=problem)
    return Record(number, value, notes=notes)


def loads(text: str) -> tuple[Any, tuple[str, ...]]:
    """The value of a JSON text; half surrogate pairs are replaced by U+FFFD, and that is noted.

    Raises: JSONProblem.
    """
    try:
        return strict_json.loads(text), ()
    except strict_json.LoneSurrogate:
        return strict_json.loads(text, mend=True), ("half a surrogate pair replaced by U+FFFD",)


def _hint(text: str, ends: bool) -> str:
    start = text.lstrip()
    if start.startswith(("{'", "[{'")):
        return " Python's single quotes are not JSON; write rows with json.dumps."
    if re.search(r",\s*[}\]]", text):
        return " There is a comma before a closing bracket."
    if "\r" in text:
        return " It holds carriage returns alone; end lines with a line feed."
    if not ends and not text.rstrip().endswith("}"):
        return " The upload looks truncated: its last line is cut off."
    if "\0" in text[:100]:
        return " It looks like UTF-16 without a byte order mark; choose the encoding utf-16-le."
    return ""


def items_of_array(pieces: Iterator[str], *, cut: bool = False) -> Iterator[Record]:
    """The rows of one JSON array, each read when its end is found.

    Brackets and quotes alone tell where that is, so that a faulty row is told and passed over.
    """
    scanner = _Scanner()
    for piece in pieces:
        yield from scanner.items(piece)
    if cut or scanner.is_over:
        return
    if scanner.start_line:
        raise fatal_at(
            scanner.start_line,
            "This row of the array has no end before the file's; the upload looks truncated.",
        )
    raise whole_file(
        f"The array has no closing ] before the file's end, in line {scanner.line}:"
        " the upload looks truncated."
    )


class _Scanner:
    """Finds the items of an array in text that comes piece by piece.

    depth: 0 before and after the array, 1 between its items, more inside one.
    """

    def __init__(self) -> None:
        self.depth, self.in_string, self.is_over = 0, False, False
        self.line, self.start_line = 1, 0  # of what is looked at, of the item under way (0: none)
        self._parts: list[str] = []
        self._size, self._skip_one = 0, False
        self._num_items, self._after_comma = 0, False

    def items(self, piece: str) -> Iterator[Record]:
        """The items that end in this piece."""
        begin = place = 0
        if self._skip_one and piece:
            place, self._skip_one = 1, False
        while found := self._next_mark(piece, place):
            mark, place = found
            if mark == "\\":
                self._skip_one = place == len(piece)
                place += 1
            elif mark == '"':
                self.in_string = not self.in_string
            elif self.is_over:
                break
            elif (self.depth == 0 and mark != "[") or (self.depth == 1 and mark == "}"):
                self.line += piece.count("\n", begin, place)
                raise fatal_at(
                    self.line, f"Here the array must go on or begin, and there is {mark}."
                )
            elif mark in "[{":
                self.depth += 1
                if self.depth == 1:
                    begin = self._pass(piece, begin, place)
            else:
                if self.depth == 1:
                    self._take(piece[begin : place - 1])
                    yield from self._item(mark)
                    begin = place
                self.depth -= mark in "]}"
                self.is_over = self.depth == 0
        self._take(piece[begin:])
        if self.is_over and "".join(self._parts).strip():
            raise fatal_at(self.line, "After the end of the array comes something else.")

    def _next_mark(self, piece: str, place: int) -> tuple[str, int] | None:
        """The next mark that means something here, and the place behind it."""
        if not self.in_string:
            match = _OUTSIDE.search(piece, place)
            return (match[0], match.end()) if match else None
        quote = piece.find('"', place)
        slash = piece.find("\\", place, quote if quote >= 0 else len(piece))
        if slash >= 0:
            return "\\", slash + 1
        return ('"', quote + 1) if quote >= 0 else None

    def _pass(self, piece: str, begin: int, end: int) -> int:
        self.line += piece.count("\n", begin, end)
        return end

    def _take(self, part: str) -> None:
        if not self.start_line and (body := part.lstrip()):
            self.start_line = self.line + part.count("\n", 0, len(part) - len(body))
        self.line += part.count("\n")
        self._size += len(part)
        if self._size <= MAX_RECORD_BYTES:
            self._parts.append(part)

    def _item(self, mark: str) -> Iterator[Record]:
        """The item that a comma or the closing bracket ends."""
        text, number, size = "".join(self._parts).strip(), self.start_line, self._size
        self._parts, self._size, self.start_line = [], 0, 0
        is_last = mark == "]"
        if not text and size <= MAX_RECORD_BYTES:
            if is_last and not self._after_comma:
                return  # an empty array
            what = "There is a comma before the closing ]." if is_last else "There is no row here."
            yield Record(self.line, problem=what)
        elif size > MAX_RECORD_BYTES:
            yield Record(number, problem=_TOO_LONG)
        else:
            yield _record(number, text, ends=True)
        self._after_comma = not is_last
