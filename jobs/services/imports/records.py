"""What every reader yields: one record of a file with the line where it begins, or its fault."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from engine.errors import DatasetError

MAX_RECORD_BYTES = 4 * 2**20  # of one line, cell or row; parsed it takes up to forty times as much
MAX_LINES = 10_000_000  # blank ones included


@dataclass(frozen=True)
class Record:
    """One row as it stands in the file.

    number: physical line where it begins, from 1; in Parquet the row. problem: why there is no
    value. notes: what was changed to read it, each a phrase.
    """

    number: int
    value: Any = None
    problem: str = ""
    notes: tuple[str, ...] = ()


def printable(text: str) -> str:
    """What a library says, without what cannot be shown or kept: it may quote the file's bytes."""
    return "".join(mark if mark.isprintable() else " " for mark in text)


def whole_file(message: str) -> DatasetError:
    """The error for a file that is wrong as a whole."""
    return DatasetError(message, [(0, message)])


def fatal_at(number: int, message: str) -> DatasetError:
    """The error for a fault at a line after which the rest cannot be trusted."""
    return DatasetError(f"Line {number}: {message}", [(number, message)])
