"""Reference answers: columns of the row that a completion is graded against."""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Mapping
from typing import Any

from ..errors import GraderError
from ..parameters import shown

MAX_ACCEPTED = 100  # answers of one row; a list of more is some other kind of column


def text_of(row: Mapping[str, Any], column: str) -> str:
    """The row's reference answer as text; numbers are written out.

    Raises: GraderError if the row has no such column, or something there that is no text.
    """
    return _text(_value(row, column), column)


def texts_of(row: Mapping[str, Any], column: str) -> tuple[str, ...]:
    """The row's accepted answers: those of a list, or the one that the column holds.

    Raises: GraderError as `text_of` does, and for a list that is empty or too long.
    """
    value = _value(row, column)
    if not isinstance(value, (list, tuple)):
        return (_text(value, column),)
    if not 1 <= len(value) <= MAX_ACCEPTED:
        raise GraderError(
            f"invalid_variable_error: column {shown(column)} holds a list of {len(value):,}"
            f" answers; 1 to {MAX_ACCEPTED} can be accepted"
        )
    return tuple(_text(one, column) for one in value)


def normal_form(text: str) -> str:
    """Unicode normal form NFC, with no-break spaces as spaces."""
    return unicodedata.normalize("NFC", text).replace("\u00a0", " ")


def unusable(column: str, value: Any, reason: str) -> GraderError:
    """The error for a reference answer that says nothing to a reward function."""
    return GraderError(
        f"invalid_variable_error: column {shown(column)} holds {shown(value)}, {reason}"
    )


def _value(row: Mapping[str, Any], column: str) -> Any:
    if column not in row:
        raise GraderError(f"invalid_variable_error: the row has no column {shown(column)}")
    return row[column]


def _text(value: Any, column: str) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        raise unusable(column, value, "which is neither text nor a number")
    try:
        return str(value)
    except ValueError:  # an integer of more than 4,300 digits
        raise unusable(column, value, "which is too long") from None
