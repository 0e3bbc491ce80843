"""Scores a completion with a task's reward functions.

A score is a number, or there is none and a reason why; a failure is never turned into a 0, which
would teach the policy that its answer was wrong.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from ..errors import GraderError
from .registry import Grader

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Grade:
    """What the reward functions said."""

    reward: float | None  # weighted sum; None: a function with a weight gave no score
    rewards: dict[str, float | None] = field(default_factory=dict)  # unweighted, by name
    error: str = ""  # why scores are missing, function by function


def grade(graders: Sequence[Grader], completion: str, row: dict[str, Any]) -> Grade:
    """Score a completion of the row's prompt. Never raises."""
    rewards: dict[str, float | None] = {}
    errors = []
    total: float | None = 0.0
    for grader in graders:
        try:
            rewards[grader.name] = score = _score(grader, completion, row)
            if total is not None:
                total += grader.weight * score
        except GraderError as error:
            rewards[grader.name] = None
            errors.append(f"{grader.name}: {error}")
            if grader.weight:
                total = None
    return Grade(total, rewards, "; ".join(errors)[:500])


def _score(grader: Grader, completion: str, row: dict[str, Any]) -> float:
    """A finite score. Raises: GraderError, whatever went wrong."""
    try:
        score = float(grader.score(completion, row))
    except GraderError:
        raise
    except Exception as error:
        log.exception("reward function %s failed", type(grader).__name__)
        raise GraderError(f"python_grader_server_error: {type(error).__name__}") from error
    if not math.isfinite(score):
        raise GraderError(f"python_grader_runtime_error: the score is {score}")
    return score
