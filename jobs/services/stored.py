"""What JSON columns and Redis hold, read with care: another version may have written it.

Whoever plans reads all of it with each plan, so one value that cannot be read would end the work of
every tenant. What is missing or makes no sense counts as 0, as if it had not been told yet.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

LARGEST = 1e15  # far beyond any count of tokens or seconds; whole numbers stay exact up to here


def mapping(value: Any) -> dict[str, Any]:
    """The value, if it is one; else an empty one."""
    return value if isinstance(value, dict) else {}


def listing(value: Any) -> list[Any]:
    """The value, if it is a list; else an empty one."""
    return value if isinstance(value, list) else []


def number(found: Any, name: str) -> float:
    """A finite number of at least 0 by its name; 0.0 if it is missing or none such."""
    value = mapping(found).get(name)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return 0.0
    return float(value) if 0 <= value <= LARGEST else 0.0


def whole(found: Any, name: str) -> int:
    """The same, without what is behind the point."""
    return int(number(found, name))


def storable(figures: Mapping[str, Any]) -> dict[str, Any]:
    """Without numbers that JSON does not know: one of them would make the whole unstorable."""
    return {
        name: value
        for name, value in figures.items()
        if not isinstance(value, float) or math.isfinite(value)
    }
