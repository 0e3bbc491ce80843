"""Bytes to text and physical lines: an encoding is known or chosen, never guessed.

Lines end at "\\n" alone, for text may hold other separators; one "\\r" before it is dropped.
"""

from __future__ import annotations

import codecs
from collections.abc import Iterator
from typing import Protocol

from .records import MAX_LINES, MAX_RECORD_BYTES, whole_file

ENCODINGS = (
    *("utf-8", "utf-16", "utf-16-le", "utf-16-be", "utf-32", "latin-1", "iso-8859-15"),
    *("cp1252", "cp1250", "cp1251", "koi8-r", "shift_jis", "gb18030", "big5", "euc-kr"),
)
PIECE_BYTES = 2**16
_BOMS = (  # the longer first: UTF-32 begins as UTF-16 does
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)


class Readable(Protocol):
    """What bytes come from."""

    def read(self, size: int, /) -> bytes:
        """At most `size` bytes; b"" at the end."""


def encoding_by_mark(head: bytes) -> str:
    """The encoding that a byte order mark tells; "" without one."""
    return next((name for mark, name in _BOMS if head.startswith(mark)), "")


def text_pieces(file: Readable, encoding: str, *, cut: bool = False) -> Iterator[str]:
    """The text, piece by piece, without a byte order mark.

    Raises: DatasetError naming the first byte that is none of the encoding's, and its line.
    """
    decoder = codecs.getincrementaldecoder(encoding)("strict")
    offset, line, is_first = 0, 1, True
    while True:
        data = file.read(PIECE_BYTES)
        pending = len(decoder.getstate()[0])
        try:
            text = decoder.decode(data, final=not data and not cut)
        except UnicodeDecodeError as error:
            raise _not_encoded(error, encoding, offset - pending, line) from None
        if is_first and text:
            text, is_first = text.removeprefix("\ufeff"), False
        offset += len(data)
        line += text.count("\n")
        if text:
            yield text
        if not data:
            return


def _not_encoded(error: UnicodeDecodeError, encoding: str, offset: int, line: int) -> Exception:
    """The error that names the place. The decoder's object is what it had not decoded before."""
    before = error.object[: error.start].decode(encoding, "replace")
    place = f"byte {offset + error.start + 1:,} of the file, in line {line + before.count(chr(10))}"
    choose = "choose the encoding that it was saved in (latin-1, cp1252, utf-16, …)"
    return whole_file(
        f"Not {encoding.upper()}: 0x{error.object[error.start]:02x} at {place};"
        f" save the file as UTF-8, or {choose}."
    )


def text_lines(pieces: Iterator[str]) -> Iterator[tuple[int, str, bool, bool]]:
    """(number, text, whether that is all of it, whether a line end follows).

    The rest of a line too long is passed over. Raises: DatasetError if there are too many lines.
    """
    number, rest, is_whole = 1, "", True
    for piece in pieces:
        *whole, last = piece.split("\n")
        for part in whole:
            if number > MAX_LINES:
                raise whole_file(f"More than {MAX_LINES:,} lines, blank ones included.")
            line, is_whole = _joined(rest, part, is_whole)
            yield number, line.removesuffix("\r"), is_whole, True
            number, rest, is_whole = number + 1, "", True
        rest, is_whole = _joined(rest, last, is_whole)
    if rest or not is_whole:
        yield number, rest.removesuffix("\r"), is_whole, False


def _joined(start: str, part: str, is_whole: bool) -> tuple[str, bool]:
    if not is_whole or len(start) + len(part) > MAX_RECORD_BYTES:
        return start[:200], False
    return start + part, True
