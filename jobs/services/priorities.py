"""A task's priority: a whole number that counts among the tasks of its own organisation alone."""

from __future__ import annotations

from typing import Any

from engine.errors import SpecError
from engine.parameters import number

LIMITS = {"low": -10, "high": 10}
PRIORITY = {  # as forms, pages and the API explain it
    "name": "priority",
    "type": "integer",
    "default": 0,
    "help": f"from {LIMITS['low']} to {LIMITS['high']}: among your organisation's tasks the higher"
    " is served first, in the queue and once they run; ten minutes of waiting are worth one more."
    " Others' tasks are not touched",
}


def checked_priority(value: Any) -> int:
    """A person's value. Raises: SpecError on `priority`."""
    try:
        found: int = number(value, LIMITS, is_whole=True)
    except ValueError as error:
        raise SpecError({"priority": [str(error)]}) from None
    return found
