"""How long prompts are in a base model's tokens: what `max_prompt_length` has to cover."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from functools import lru_cache

from engine.config import TaskConfig
from engine.errors import ModelError, SpecError
from engine.models.chat import ChatTokenizer
from jobs.models import BaseModel, Dataset
from jobs.services.datasets import read_rows

MEASURED_ROWS = 2_000
MEASURED_S = 5.0


@dataclass(frozen=True)
class Lengths:
    """Tokens of the first `num_rows` prompts. num_over: those longer than `limit`.

    num_refused: those that the model's chat template refuses; `refusal` tells the first.
    """

    num_rows: int
    min: int
    median: int
    p95: int
    max: int
    limit: int
    num_over: int
    num_refused: int
    refusal: str


def measure_lengths(dataset: Dataset, base_model: BaseModel, limit: int = 0) -> Lengths:
    """Measure the first 2,000 prompts, or as many as five seconds allow.

    limit: tokens; 0 for the default `max_prompt_length`.
    Raises: SpecError on `base_model` or `dataset`; ArtifactError.
    """
    if dataset.kind != Dataset.Kind.PROMPTS:
        raise SpecError({"dataset": ["A corpus has no prompts to measure."]})
    try:
        tokenizer = _tokenizer(base_model.path)
    except ModelError as error:
        raise SpecError({"base_model": [f"{base_model.name} cannot be read: {error}"]}) from None
    found: list[int] = []
    num_refused, refusal = 0, ""
    ends_at = time.monotonic() + MEASURED_S
    for number, row in enumerate(read_rows(dataset), start=1):
        try:
            found.append(len(tokenizer.encode_chat(row["messages"])))
        except ModelError as error:
            num_refused += 1
            refusal = refusal or f"Row {number}: {error}"[:300]
        if number == MEASURED_ROWS or time.monotonic() > ends_at:
            break
    limit = limit or TaskConfig().max_prompt_length
    return _lengths(sorted(found), limit, num_refused, refusal)


def _lengths(found: list[int], limit: int, num_refused: int, refusal: str) -> Lengths:
    """found: sorted."""
    num = len(found)

    def at(share: float) -> int:
        """The smallest length that this share of the prompts does not exceed."""
        return found[max(0, math.ceil(num * share) - 1)] if found else 0

    return Lengths(
        num_rows=num + num_refused,
        min=found[0] if found else 0,
        median=at(0.5),
        p95=at(0.95),
        max=found[-1] if found else 0,
        limit=limit,
        num_over=sum(length > limit for length in found),
        num_refused=num_refused,
        refusal=refusal,
    )


@lru_cache(maxsize=2)
def _tokenizer(path: str) -> ChatTokenizer:
    return ChatTokenizer(path)
