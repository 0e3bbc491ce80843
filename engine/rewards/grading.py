"""Scores a completion with a task's reward functions.

A score is a number, or there is none and a reason why; a failure is never turned into a 0, which
would teach the policy that its answer was wrong.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, cast

from ..errors import GraderError
from .grader import Grader, ServiceGrader, is_pure
from .services import Sample, Services

MAX_ERROR_CHARACTERS = 500
LARGEST_SCORE = 1e6  # more would drown what all others say, and overflow where it is squared
# A stranger's pattern may take a fifth of a second, in which the loop serves everybody else.
THREADS = ThreadPoolExecutor(4, thread_name_prefix="grader")

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Grade:
    """What the reward functions said."""

    reward: float | None  # weighted sum; None: a function with a weight gave no score
    rewards: dict[str, float | None] = field(default_factory=dict)  # unweighted, by name
    error: str = ""  # why scores are missing, function by function


async def grade(graders: Sequence[Grader], sample: Sample, services: Services) -> Grade:
    """Score a completion; functions that wait do so at once. Never raises but when cancelled."""
    scores = await asyncio.gather(*(_score(grader, sample, services) for grader in graders))
    rewards: dict[str, float | None] = {}
    errors = []
    total: float | None = 0.0
    for grader, score in zip(graders, scores, strict=True):
        if isinstance(score, GraderError):
            rewards[grader.name] = None
            errors.append(f"{grader.name}: {score}")
            total = total if not grader.weight else None
            continue
        rewards[grader.name] = score
        if total is not None:
            total += grader.weight * score
    return Grade(total, rewards, "; ".join(errors)[:MAX_ERROR_CHARACTERS])


def grade_purely(graders: Sequence[Grader], completion: str, row: Mapping[str, Any]) -> Grade:
    """`grade` for reward functions that need no services, without an event loop."""
    assert all(is_pure(grader) for grader in graders), "some of these need services"
    return asyncio.run(grade(graders, Sample(completion, row), Services()))


async def _score(grader: Grader, sample: Sample, services: Services) -> float | GraderError:
    """A finite score, or why there is none."""
    try:
        if is_pure(grader):
            loop = asyncio.get_running_loop()
            score = float(
                await loop.run_in_executor(THREADS, grader.score, sample.completion, sample.row)
            )
        else:
            waiting = cast(ServiceGrader, grader)
            score = float(await waiting.score_with(sample, services))
    except GraderError as error:
        return error
    except Exception as error:
        log.exception("reward function %s failed", type(grader).__name__)
        return GraderError(f"python_grader_server_error: {type(error).__name__}")
    if not abs(score) <= LARGEST_SCORE:  # NaN, too
        return GraderError(
            f"python_grader_runtime_error: the score is {score:g}; it must be a number from"
            f" -{LARGEST_SCORE:,.0f} to {LARGEST_SCORE:,.0f}"
        )
    return score
