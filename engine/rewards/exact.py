"""The completion is the reference answer."""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..parameters import parameter
from .columns import text_of


@dataclass(frozen=True)
class Exact:
    """1 if the completion equals the reference answer, else 0.

    Compared in Unicode normal form NFC, so that composed and decomposed accents are equal.
    """

    name: str
    weight: float = 1.0
    target: str = parameter("answer", "column with the reference answer")
    strip: bool = parameter(True, "ignore white space at both ends")
    ignore_case: bool = parameter(False, "ignore upper and lower case")

    def score(self, completion: str, row: Mapping[str, Any]) -> float:
        """0 or 1. Raises: GraderError if the row has no usable reference answer."""
        return float(self._plain(completion) == self._plain(text_of(row, self.target)))

    def _plain(self, text: str) -> str:
        text = unicodedata.normalize("NFC", text)
        text = text.strip() if self.strip else text
        return text.casefold() if self.ignore_case else text
