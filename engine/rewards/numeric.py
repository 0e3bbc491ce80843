"""A number of the completion is the reference number.

Which texts are numbers is said in `quantities.py`. A reference answer that is anything else, such
as a formula, is refused, because taking some number out of it would reward a wrong answer.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from ..parameters import parameter
from .columns import text_of, unusable
from .latex import last_box
from .numerals import DECIMAL_MARKS
from .quantities import Quantity, first_quantity, last_quantity, read_quantity

MAX_TEXT_CHARACTERS = 20_000  # of the end that is looked at (of the start, for the first)


@dataclass(frozen=True)
class Numeric:
    r"""1 if the chosen number of the completion is the reference number, else 0.

    A completion without a number scores 0. The reference may be a number, a number as text, a
    fraction, LaTeX such as \frac{3}{4}, all these with a unit, or a worked solution that ends in
    "#### number" (GSM8K) or has a \boxed{number}. Units are not converted: 1 km is not 1000 m.
    """

    name: str
    weight: float = 1.0
    target: str = parameter("answer", "column with the reference number")
    which: str = parameter(
        "last",
        "which number of the completion counts; last: the one in the last \\boxed{}, else after the"
        " last ####, else the last; only: the completion must be nothing else",
        choices=("last", "first", "only"),
    )
    tolerance: float = parameter(
        0.0, "largest difference that still counts as equal", low=0.0, high=1e9
    )
    relative_tolerance: float = parameter(
        0.0, "the same, as a part of the reference number", low=0.0, high=1.0
    )
    decimal_mark: str = parameter(
        "auto",
        "what begins decimals; auto: 1,234.5 and 1.234,5 are both understood, 1,234 is 1234",
        choices=DECIMAL_MARKS,
    )
    units: str = parameter(
        "ignore",
        "compare: if the reference has a unit, the completion must have the same",
        choices=("ignore", "compare"),
    )
    percent: str = parameter(
        "number", "whether 12% counts as 12 or as 0.12", choices=("number", "fraction")
    )

    def score(self, completion: str, row: Mapping[str, Any]) -> float:
        """0 or 1. Raises: GraderError if the row has no usable reference number."""
        wanted = self._reference(text_of(row, self.target))
        found = self._found(completion)
        if found is None:
            return 0.0
        if self.percent == "fraction":
            wanted, found = wanted.as_fraction(), found.as_fraction()
        if self.units == "compare" and found.units[: len(wanted.units)] != wanted.units:
            return 0.0
        return float(self._is_near(found.value, wanted.value))

    def _is_near(self, found: Fraction | None, wanted: Fraction | None) -> bool:
        if found is None or wanted is None:
            return False
        allowed = max(
            Fraction(str(self.tolerance)), Fraction(str(self.relative_tolerance)) * abs(wanted)
        )
        return abs(found - wanted) <= allowed

    def _found(self, completion: str) -> Quantity | None:
        if self.which == "first":
            return first_quantity(completion[:MAX_TEXT_CHARACTERS], self.decimal_mark)
        text = completion[-MAX_TEXT_CHARACTERS:]
        if self.which == "only":
            return read_quantity(text, self.decimal_mark)
        box = last_box(text)
        if box is not None:
            return read_quantity(box, self.decimal_mark)
        _, mark, answer = text.rpartition("####")
        return (first_quantity if mark else last_quantity)(answer, self.decimal_mark)

    def _reference(self, text: str) -> Quantity:
        quantity = read_reference(text, self.decimal_mark)
        if quantity is None or quantity.value is None:
            raise unusable(self.target, text, "which is not a number")
        return quantity


def read_reference(text: str, decimal_mark: str = "auto") -> Quantity | None:
    """The number of a reference answer; None if it is something else."""
    text = text[-MAX_TEXT_CHARACTERS:]
    box = last_box(text)
    return read_quantity(text.rpartition("####")[2] if box is None else box, decimal_mark)
