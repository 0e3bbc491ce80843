"""The completion is, or contains, the reference answer, letter by letter."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..errors import GraderError
from ..parameters import parameter, shown
from .columns import normal_form, texts_of


@dataclass(frozen=True)
class StringCheck:
    """1 if the completion compares with the reference answer as asked, else 0.

    A column that holds a list holds accepted answers: any of them counts. Compared in Unicode
    normal form NFC, so that composed and decomposed accents are equal, and with a no-break space
    as a space.
    """

    name: str
    weight: float = 1.0
    target: str = parameter(
        "answer", "column with the reference answer, or a list of accepted ones"
    )
    operation: str = parameter(
        "eq",
        "eq: equal; ne: not equal; like: contains; ilike: contains in upper or lower case",
        choices=("eq", "ne", "like", "ilike"),
    )
    strip: bool = parameter(True, "ignore white space at both ends")
    ignore_case: bool = parameter(False, "ignore upper and lower case")

    def score(self, completion: str, row: Mapping[str, Any]) -> float:
        """0 or 1. Raises: GraderError if the row has no usable reference answer."""
        accepted = [self._plain(text) for text in texts_of(row, self.target)]
        found = self._plain(completion)
        if self.operation in ("eq", "ne"):
            return float((found in accepted) == (self.operation == "eq"))
        if "" in accepted:
            raise GraderError(
                f"invalid_variable_error: column {shown(self.target)} holds an empty text, which"
                " every completion contains"
            )
        return float(any(text in found for text in accepted))

    def _plain(self, text: str) -> str:
        text = normal_form(text)
        text = text.strip() if self.strip else text
        return text.casefold() if self.ignore_case or self.operation == "ilike" else text
