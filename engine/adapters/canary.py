"""The canary of a policy version: fixed tokens, and their log-probs as the trainer computed them.

The trainer writes one beside each adapter that it makes; a rollout worker has its engine score the
same tokens under that adapter and compares. It shows what no digest can: that the weights named are
the weights applied. Tokens are those of one fixed text, never a tenant's; likely text, because the
log-probs of unlikely tokens carry most of the rounding of 16-bit weights. No torch.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from ..errors import ArtifactError, ModelError, RolloutError
from .files import write_synced

CANARY_FILE = "canary.json"
NUM_TOKENS = 32
MAX_TOKENS = 1024  # of a file that is believed
MAX_DIFFERENCE = 20.0  # nats; what is further apart, or no number, counts as this
TEXT = (
    "Question: A farmer keeps 17 sheep and buys 5 more. How many sheep are there now?\n"
    "Answer: There are 17 + 5 = 22 sheep."
)


@dataclass(frozen=True)
class Canary:
    """What the trainer knows of some tokens, at temperature 1."""

    ids: tuple[int, ...]  # (T), T >= 2
    logprobs: tuple[float, ...]  # (T - 1) nats: of ids[1:] under the adapter
    base_logprobs: tuple[float, ...]  # (T - 1) nats: the same without any adapter


@dataclass(frozen=True)
class Mismatch:
    """How far an engine's log-probs are from a trainer's; nats a token."""

    mean: float  # mean absolute difference
    max: float  # largest absolute difference
    kl: float  # mean of k3; of tokens that nobody sampled it is a distance, no unbiased KL
    base_mean: float  # mean absolute difference to the log-probs without any adapter

    @property
    def is_nearer_base(self) -> bool:
        """Whether the engine seems to have left the adapter out, if `mean` is more than noise.

        Twice as near: noise alone moves both means alike.
        """
        return self.mean > 2 * self.base_mean


def canary_ids(base_model: str | os.PathLike[str]) -> tuple[int, ...]:
    """The canary's tokens in a base model's vocabulary. Raises: ModelError.

    base_model: its local directory.
    """
    path = Path(base_model) / "tokenizer.json"
    try:
        tokenizer = Tokenizer.from_file(str(path))
    except Exception as error:  # the library raises bare Exception
        raise ModelError(f"{path} cannot be read: {error}") from error
    return tuple(tokenizer.encode(TEXT, add_special_tokens=False).ids[:NUM_TOKENS])


def compare(canary: Canary, logprobs: Sequence[float]) -> Mismatch:
    """logprobs: (T - 1) nats, the engine's for the canary's tokens. Raises: RolloutError."""
    if len(logprobs) != len(canary.logprobs):
        raise RolloutError(
            f"The engine gave {len(logprobs)} log-probs of the canary, not {len(canary.logprobs)}."
        )
    differences = _differences(canary.logprobs, logprobs)
    base_differences = _differences(canary.base_logprobs, logprobs)
    return Mismatch(
        mean=_mean([abs(d) for d in differences]),
        max=max(abs(d) for d in differences),
        kl=_mean([math.exp(d) - 1 - d for d in differences]),
        base_mean=_mean([abs(d) for d in base_differences]),
    )


def _differences(trainer: Sequence[float], engine: Sequence[float]) -> list[float]:
    """Trainer's less engine's, bounded; what is no number is as far off as can be."""
    found = [a - b for a, b in zip(trainer, engine, strict=True)]
    return [
        MAX_DIFFERENCE if math.isnan(d) else max(-MAX_DIFFERENCE, min(MAX_DIFFERENCE, d))
        for d in found
    ]


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)


def write_canary(directory: str | os.PathLike[str], canary: Canary) -> Path:
    """Write it beside the adapter's files, synced. Raises: ArtifactError."""
    content = {
        "ids": canary.ids,
        "logprobs": canary.logprobs,
        "base_logprobs": canary.base_logprobs,
    }
    return write_synced(Path(directory) / CANARY_FILE, json.dumps(content).encode())


def read_canary(directory: str | os.PathLike[str]) -> Canary | None:
    """The canary beside an adapter; None if it has none, as version 0. Raises: ArtifactError."""
    path = Path(directory) / CANARY_FILE
    if not path.is_file():
        return None
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        canary = Canary(
            tuple(content["ids"]),
            _floats(content["logprobs"]),
            _floats(content["base_logprobs"]),
        )
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise ArtifactError(f"The canary {path} cannot be read: {error}") from error
    if problem := _problem(canary):
        raise ArtifactError(f"The canary {path} is not usable: {problem}.")
    return canary


def _floats(values: Any) -> tuple[float, ...]:
    return tuple(float(value) for value in values)


def _problem(canary: Canary) -> str:
    """What is wrong with it; "" if nothing."""
    if not 2 <= len(canary.ids) <= MAX_TOKENS:
        return f"it has {len(canary.ids)} tokens, not 2 to {MAX_TOKENS}"
    if not all(type(token) is int and token >= 0 for token in canary.ids):
        return "its ids are no token ids"
    for values in (canary.logprobs, canary.base_logprobs):
        if len(values) != len(canary.ids) - 1 or not all(map(math.isfinite, values)):
            return "its log-probs are not one finite number for each token but the first"
    return ""
