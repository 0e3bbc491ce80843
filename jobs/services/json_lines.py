"""JSON Lines from strangers: physical lines, and what is wrong with each.

Lines end at "\\n" alone (text may hold other line separators); one "\\r" before it and a UTF-8 byte
order mark at the start are dropped; blank lines are skipped and counted. Memory is bounded by the
length of one line, whatever the file is.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import IO, Any

from engine.errors import DatasetError
from engine.parameters import shown
from jobs import strict_json

MAX_LINE_BYTES = 2**20
MAX_LINES = 1_000_000
_BOM = b"\xef\xbb\xbf"
_OTHER_FORMATS = (
    (b"\xff\xfe", "UTF-16 text; save it as UTF-8"),
    (b"\xfe\xff", "UTF-16 text; save it as UTF-8"),
    (b"\x1f\x8b", "compressed with gzip; unpack it first"),
    (b"(\xb5/\xfd", "compressed with zstandard; unpack it first"),
    (b"PK\x03\x04", "a zip archive; unpack it first"),
    (b"PAR1", "a Parquet file; write it as JSON Lines"),
)


@dataclass(frozen=True)
class Line:
    """A line that is not blank: its value, or why there is none."""

    number: int  # physical, from 1
    value: Any = None
    problem: str = ""


def read_lines(file: IO[bytes]) -> Iterator[Line]:
    """The lines of a file. Raises: DatasetError where the whole file is something else."""
    offset = 0
    for number, raw, is_whole in _raw_lines(file):
        if number == 1:
            _check_format(raw)
        text = raw.removeprefix(_BOM) if number == 1 else raw
        if not is_whole:
            yield Line(number, problem=f"Is longer than {MAX_LINE_BYTES // 2**20} MiB.")
        elif text.strip():
            if number == 1:
                _check_layout(text)
            yield _line(number, text, offset, ends=raw.endswith(b"\n"))
        offset += len(raw)


def _raw_lines(file: IO[bytes]) -> Iterator[tuple[int, bytes, bool]]:
    """(number, bytes, whether that is all of it); the rest of a line too long is passed over."""
    number = 0
    while raw := file.readline(MAX_LINE_BYTES + 1):
        number += 1
        if number > MAX_LINES:
            raise whole_file(f"More than {MAX_LINES:,} lines, blank ones included.")
        is_whole = len(raw) <= MAX_LINE_BYTES
        yield number, raw, is_whole
        while not is_whole and raw and not raw.endswith(b"\n"):
            raw = file.readline(MAX_LINE_BYTES)


def _check_format(start: bytes) -> None:
    for magic, what in _OTHER_FORMATS:
        if start.startswith(magic):
            raise whole_file(f"This is {what}. JSON Lines in UTF-8 is expected.")


def _check_layout(first: bytes) -> None:
    if first.lstrip().startswith(b"["):
        raise whole_file(
            "This is one JSON array. JSON Lines is expected: one object a line, without brackets"
            " around and commas between."
        )
    if first.strip() == b"{":
        raise DatasetError(
            "Line 1: the objects are spread over several lines; write each on one line.",
            [(1, "The object goes on in the next line; write each on one line.")],
        )


def whole_file(message: str) -> DatasetError:
    """The error for a file that is wrong as a whole."""
    return DatasetError(message, [(0, message)])


def _line(number: int, raw: bytes, offset: int, *, ends: bool) -> Line:
    try:
        text = raw.decode().removesuffix("\n").removesuffix("\r")
    except UnicodeDecodeError as error:
        place = f"byte {error.start + 1} of the line, {offset + error.start + 1} of the file"
        return Line(number, problem=f"Is not UTF-8: 0x{raw[error.start]:02x} at {place}.")
    try:
        value = strict_json.loads(text)
    except strict_json.JSONProblem as error:
        return Line(number, problem=f"{error}{_hint(text, ends)}")
    if not isinstance(value, dict):
        return Line(number, problem=f"Must be an object such as {{…}}, not {shown(value)}.")
    return Line(number, value)


def _hint(text: str, ends: bool) -> str:
    if text.lstrip().startswith("{'"):
        return " Python's single quotes are not JSON; write rows with json.dumps."
    if not ends and not text.rstrip().endswith("}"):
        return " The upload looks truncated: its last line is cut off."
    return ""
