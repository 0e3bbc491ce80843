"""A check's look at the dataset: prompts tokenised, reference answers read, prompts chosen.

All rows where there are few enough, else a sample that its task's seed decides; bounded in time.
"""

from __future__ import annotations

import itertools
import json
import random
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from engine.config import TaskConfig
from engine.environments import Chat
from engine.errors import ModelError
from engine.preflight import LengthCount, Lengths, ReferenceCount, reference_counts
from engine.rewards import Grader
from jobs import artifacts
from jobs.models import Dataset
from jobs.services.failures import told
from jobs.services.preflight import Progress

MAX_ROWS = 20_000  # looked at
LOOK_S = 30.0  # at most; a hostile pattern may take a fifth of a second a row
NUM_PROMPTS = 16  # chosen to be tried
SHARE_OF_WORK = 0.3  # of the whole check, for its progress


@dataclass(frozen=True)
class Prompt:
    """One that is to be tried."""

    number: int  # of its row, from 1
    row: dict[str, Any]
    ids: tuple[int, ...]


@dataclass
class Look:
    """What was found in the dataset."""

    lengths: Lengths
    references: list[ReferenceCount]
    prompts: list[Prompt]  # in an order that says nothing of their place
    mean_length: float  # tokens of the prompts that fit
    remarks: list[str] = field(default_factory=list)


def look(
    dataset: Dataset,
    config: TaskConfig,
    graders: tuple[Grader, ...],
    chat: Chat,
    progress: Progress,
) -> Look:
    """Go through the rows once. Raises: ArtifactError, Unwanted, ModelError for the environment."""
    chosen = _sampled_rows(dataset.num_rows, config.seed)
    count = LengthCount(config.max_prompt_length)
    references = reference_counts(graders)
    num_wanted = len(chosen) if chosen is not None else dataset.num_rows
    ends_at, is_cut, num_seen, fitting_tokens = time.monotonic() + LOOK_S, False, 0, 0
    for number, row in _rows(dataset, chosen):
        share = SHARE_OF_WORK * num_seen / max(1, num_wanted)
        progress.tell(f"reading row {number:,} of {dataset.num_rows:,}", share)
        num_seen += 1
        fitting_tokens += _tokenise(number, row, config, chat, count)
        for one in references:
            if one.is_pure:
                one.add(number, row)
        if time.monotonic() > ends_at:
            is_cut = num_seen < num_wanted
            break
    found = Look(
        lengths=count.lengths(dataset.num_rows, is_cut=is_cut),
        references=references,
        prompts=_prompts(dataset, list(count.fitting), config, chat),
        mean_length=fitting_tokens / max(1, len(count.fitting)),
    )
    if chosen is not None:
        found.remarks.append(
            f"{num_seen:,} of {dataset.num_rows:,} rows were looked at, chosen at random."
        )
    if is_cut:
        found.remarks.append(
            f"The time was up after {num_seen:,} rows; those after row {number:,} were not looked"
            " at."
        )
    return found


def _sampled_rows(num_rows: int, seed: int) -> set[int] | None:
    """Numbers of the rows to look at; None: all."""
    if num_rows <= MAX_ROWS:
        return None
    return set(random.Random(f"{seed}:rows").sample(range(1, num_rows + 1), MAX_ROWS))


def _rows(dataset: Dataset, chosen: set[int] | None) -> Iterator[tuple[int, dict[str, Any]]]:
    """(number from 1, row), without reading the others as JSON."""
    with artifacts.open_stream(dataset.key) as file:
        for number, line in enumerate(file, start=1):
            if chosen is None or number in chosen:
                yield number, json.loads(line)


def _tokenise(
    number: int, row: dict[str, Any], config: TaskConfig, chat: Chat, count: LengthCount
) -> int:
    """Count a prompt; its tokens if it fits."""
    try:
        length = len(config.environment.encode_prompt(row["messages"], chat))
    except ModelError as error:
        count.refuse(number, told(error)[:300])
        return 0
    count.add(number, length)
    return length if length <= config.max_prompt_length else 0


def _prompts(dataset: Dataset, fitting: list[int], config: TaskConfig, chat: Chat) -> list[Prompt]:
    """One of each stretch of the rows that fit, shuffled."""
    rng = random.Random(f"{config.seed}:prompts")
    num = min(NUM_PROMPTS, len(fitting))
    edges = [len(fitting) * place // max(1, num) for place in range(num + 1)]
    picked = {fitting[rng.randrange(*pair)] for pair in itertools.pairwise(edges)}
    prompts = []
    for number, row in _rows(dataset, picked):
        ids = config.environment.encode_prompt(row["messages"], chat)
        prompts.append(Prompt(number, row, tuple(ids)))
        if len(prompts) == len(picked):
            break
    rng.shuffle(prompts)
    return prompts
