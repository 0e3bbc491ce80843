"""Reference answers: columns of the row that a completion is graded against."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from ..errors import GraderError
from ..parameters import shown


def text_of(row: Mapping[str, Any], column: str) -> str:
    """The row's reference answer as text; numbers are written out.

    Raises: GraderError if the row has no such column, or something there that is no text.
    """
    if column not in row:
        raise GraderError(f"invalid_variable_error: the row has no column {shown(column)}")
    value = row[column]
    if isinstance(value, str):
        return value
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        raise GraderError(
            f"invalid_variable_error: column {shown(column)} holds {shown(value)},"
            " which is neither text nor a number"
        )
    return str(value)
