"""The completion is like the reference text."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..parameters import parameter
from .columns import normal_form, texts_of
from .similarity import METRICS

MAX_CHARACTERS = 10_000  # of either text, from its start; the time grows with the product of both


@dataclass(frozen=True)
class TextSimilarity:
    """How like the reference text the completion is, from 0 to 1.

    A column that holds a list holds accepted texts: the most alike counts. The first 10,000
    characters of each are compared.
    """

    name: str
    weight: float = 1.0
    target: str = parameter("answer", "column with the reference text, or a list of accepted ones")
    evaluation_metric: str = parameter(
        "token_f1",
        "token_f1, exact_match: as for answers to questions, without articles and punctuation;"
        " fuzzy_match: by letters; rouge_1, rouge_2, rouge_l: by words",
        choices=tuple(METRICS),
    )
    pass_threshold: float = parameter(
        0.0,
        "0: the score is the likeness; else 1 from this likeness on, and 0 below",
        low=0,
        high=1,
    )

    def score(self, completion: str, row: Mapping[str, Any]) -> float:
        """0 … 1. Raises: GraderError if the row has no usable reference text."""
        references = [normal_form(text[:MAX_CHARACTERS]) for text in texts_of(row, self.target)]
        found = normal_form(completion[:MAX_CHARACTERS])
        metric = METRICS[self.evaluation_metric]
        likeness = max(metric(found, reference) for reference in references)
        return float(likeness >= self.pass_threshold) if self.pass_threshold else likeness
