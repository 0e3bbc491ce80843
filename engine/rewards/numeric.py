"""A number of the completion is the reference number.

Digits of any script count, as do commas and no-break spaces between groups of three. A minus that
follows a letter, a digit or a closing bracket is a hyphen or a subtraction, not a sign. Fractions,
percentages and formulas are not computed: a reference answer that holds one is refused, because
taking some number out of it would reward a wrong answer.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from ..errors import GraderError
from ..parameters import parameter, shown
from .columns import text_of

_UNSIGNED = (
    r"(?:\d{1,3}(?:[,\u00a0\u2009\u202f]\d{3})+(?!\d)|\d+)(?:\.\d+)?(?:[eE][-+]?\d{1,3}(?!\d))?"
    r"|\.\d+"
)
_NUMBER = re.compile(rf"(?:(?<![\w)\]])[-+−])?(?:{_UNSIGNED})")
_REFERENCE = re.compile(rf"\$?\s*([-+−]?(?:{_UNSIGNED}))\s*\.?")
_SEPARATORS = str.maketrans({",": "", "\u00a0": "", "\u2009": "", "\u202f": "", "−": "-"})


@dataclass(frozen=True)
class Numeric:
    """1 if the chosen number of the completion is the reference number, else 0.

    A completion without a number scores 0. The reference may be a number, a number as text, or a
    worked solution that ends in "#### number" (GSM8K).
    """

    name: str
    weight: float = 1.0
    target: str = parameter("answer", "column with the reference number")
    which: str = parameter(
        "last",
        "which number of the completion counts; only: the completion must be nothing else",
        choices=("last", "first", "only"),
    )
    tolerance: float = parameter(
        0.0, "largest difference that still counts as equal", low=0.0, high=1e9
    )

    def score(self, completion: str, row: Mapping[str, Any]) -> float:
        """0 or 1. Raises: GraderError if the row has no usable reference number."""
        reference = _reference(text_of(row, self.target), self.target)
        found = self._number(completion)
        if found is None:
            return 0.0
        return float(abs(found - reference) <= Decimal(str(self.tolerance)))

    def _number(self, completion: str) -> Decimal | None:
        if self.which == "only":
            whole = _REFERENCE.fullmatch(completion.strip())
            return _decimal(whole[1]) if whole else None
        numbers = _NUMBER.finditer(completion)
        if self.which == "first":
            match = next(numbers, None)
        else:
            match = None
            for match in numbers:  # noqa: B007 - the last one is wanted
                pass
        return _decimal(match[0]) if match else None


def _reference(text: str, column: str) -> Decimal:
    match = _REFERENCE.fullmatch(text.rpartition("####")[2].strip())
    if match is None:
        raise GraderError(
            f"invalid_variable_error: column {shown(column)} holds {shown(text)},"
            " which is not a number"
        )
    return _decimal(match[1])


def _decimal(text: str) -> Decimal:
    return Decimal(text.translate(_SEPARATORS))
