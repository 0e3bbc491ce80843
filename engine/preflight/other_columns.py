"""Whether another column of the dataset answers what the policy says better than the chosen one.

Sampled completions are graded against every column: one that a small model already meets now and
then, where it never meets the chosen one, is most likely the answer, and the chosen one is not.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ..errors import GraderError
from ..rewards import Grader, is_pure
from .references import FULL

MAX_COLUMNS = 20
MIN_MEETINGS = 3  # fewer may be chance
MIN_FACTOR = 4  # times as many as the chosen one


@dataclass(frozen=True)
class OtherColumn:
    """A column that fits a grader better than the one it was given."""

    grader: str
    chosen: str
    chosen_share: float  # of completions that score full against it
    better: str
    better_share: float


def better_columns(
    graders: Sequence[Grader],
    completions: Sequence[tuple[str, Mapping[str, Any]]],
    columns: Sequence[str],
    is_time_up: Callable[[], bool] = lambda: False,
) -> tuple[OtherColumn, ...]:
    """One for each pure grader with a target that fits another column better.

    completions: (text, row) each. is_time_up: asked before each score.
    """
    found = []
    for grader in graders:
        target = getattr(grader, "target", "")
        if not target or not is_pure(grader) or not completions:
            continue
        others = [column for column in columns if column not in (target, "messages")]
        shares = {
            column: _share(replace(grader, target=column), completions, is_time_up)  # type: ignore[type-var]
            for column in [target, *others[:MAX_COLUMNS]]
        }
        if better := _better(grader.name, target, shares, len(completions)):
            found.append(better)
    return tuple(found)


def _better(name: str, target: str, shares: dict[str, float], count: int) -> OtherColumn | None:
    best = max(shares, key=lambda column: shares[column], default=target)
    chosen, share = shares.get(target, 0.0), shares.get(best, 0.0)
    if best == target or share * count < MIN_MEETINGS or share < MIN_FACTOR * chosen:
        return None
    return OtherColumn(name, target, chosen, best, share)


def _share(
    grader: Any,
    completions: Sequence[tuple[str, Mapping[str, Any]]],
    is_time_up: Callable[[], bool],
) -> float:
    """Of completions that meet the grader's column; those not reached in time count as others."""
    num_met = 0
    for text, row in completions:
        if is_time_up():
            break
        num_met += _is_met(grader, text, row)
    return num_met / len(completions)


def _is_met(grader: Any, text: str, row: Mapping[str, Any]) -> bool:
    try:
        return bool(grader.score(text, row) >= FULL)
    except GraderError:
        return False
