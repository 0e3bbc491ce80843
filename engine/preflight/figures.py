"""Small statistics that every part of a report is made of."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

MAX_LISTED = 10  # rows that are named one by one


def at_share(ordered: Sequence[float], share: float) -> float:
    """The smallest value that this share of them does not exceed; 0 of none. ordered: sorted."""
    return ordered[max(0, math.ceil(len(ordered) * share) - 1)] if ordered else 0.0


def mean(values: Iterable[float]) -> float | None:
    """None of none."""
    found = list(values)
    return sum(found) / len(found) if found else None


def percent(share: float) -> str:
    """A share for people. What is neither nothing nor everything is not written as if it were."""
    whole = round(100 * share)
    if (whole == 0) != (share == 0) or (whole == 100) != (share == 1):
        return f"{100 * share:.1f} %"
    return f"{whole} %"


def counted(number: int, noun: str) -> str:
    """A number with its noun: 1 row, 1,200 rows."""
    return f"{number:,} {noun}" + ("" if number == 1 else "s")


def row_list(rows: Sequence[int], num_rows: int) -> str:
    """Rows for a sentence: row 3; rows 3, 8 and 400 more."""
    if not rows:
        return ""
    names = ", ".join(f"{row:,}" for row in rows)
    more = f" and {num_rows - len(rows):,} more" if num_rows > len(rows) else ""
    return f"row{'' if num_rows == 1 else 's'} {names}{more}"
