"""Whether two datasets share prompts: what is trained on must not be what is measured with."""

from __future__ import annotations

from dataclasses import dataclass

from jobs.models import Dataset
from jobs.services.datasets import read_rows
from jobs.services.imports.prompts import prompt_hash, prompt_text

MAX_EXAMPLES = 5
EXAMPLE_CHARACTERS = 300


@dataclass(frozen=True)
class Overlap:
    """count: rows of the second whose prompt the first has, white space and Unicode form apart."""

    count: int
    examples: tuple[str, ...]


def shared_prompts(a: Dataset, b: Dataset) -> Overlap:
    """Rows of `b` whose prompt is also in `a`. Raises: ArtifactError."""
    known = {prompt_hash(row) for row in read_rows(a)}
    count = 0
    examples: list[str] = []
    for row in read_rows(b):
        if prompt_hash(row) in known:
            count += 1
            if len(examples) < MAX_EXAMPLES:
                examples.append(prompt_text(row)[:EXAMPLE_CHARACTERS])
    return Overlap(count, tuple(examples))
