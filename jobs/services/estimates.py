"""How long a task's step, and the task, will still take: pure arithmetic on what was seen.

Every answer is a range that four of five outcomes should lie in, if things go on as they have
lately. It knows nothing of rows. What it cannot know: what others will submit, and that answers
grow longer as a policy learns.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

UNSEEN_SPREAD = 0.5  # standard deviation by mean, of what was seen fewer than three times
LEAST_SPREAD = 0.1  # nothing is as regular as a few alike steps make it seem
EIGHTY = 1.28  # standard deviations to either side that four of five lie within
OVERDUE = 0.5  # what is late may be later by half of that again


@dataclass(frozen=True)
class Range:
    """Seconds from now."""

    low_s: float
    high_s: float

    def __add__(self, other: Range) -> Range:
        return Range(self.low_s + other.low_s, self.high_s + other.high_s)


@dataclass(frozen=True)
class Facts:
    """What is known of a running task. Seconds; 0: not known, or not begun."""

    steps_left: int  # versions that are still to be committed
    stage: str  # of the oldest live step: "none" | "open" | "ready" | "training"
    rollout_s: float = 0.0  # learned
    pass_s: float = 0.0  # learned
    elapsed_s: float = 0.0  # in the stage
    line_s: float = 0.0  # until a trainer has done what stands in its line before the step
    cycles_s: Sequence[float] = ()  # between the last commits, newest last


def step_left(facts: Facts) -> Range | None:
    """Until the version of the oldest live step is committed; None if nobody can say yet."""
    if not facts.rollout_s or not facts.pass_s or not facts.steps_left:
        return None
    spread = spread_of(facts.cycles_s)
    training = left_of(facts.pass_s, spread, 0.0)
    if facts.stage == "training":
        return left_of(facts.pass_s, spread, facts.elapsed_s)
    if facts.stage == "ready":
        return Range(facts.line_s, facts.line_s) + training
    # What stands in the line now is gone by then, or is not.
    line = Range(0.0, facts.line_s)
    return left_of(facts.rollout_s, spread, facts.elapsed_s) + line + training


def task_left(facts: Facts) -> Range | None:
    """Until the last version is committed; None if nobody can say yet."""
    step = step_left(facts)
    if step is None:
        return None
    return step + _cycles_left(facts)


def _cycles_left(facts: Facts) -> Range:
    """Of the steps after the present one. The more of them, the more chance evens out; what does
    not is how well their mean is known from so few."""
    count = facts.steps_left - 1
    if count < 1:
        return Range(0.0, 0.0)
    seen = facts.cycles_s
    mean = statistics.median(seen) if seen else facts.rollout_s + facts.pass_s
    error = EIGHTY * spread_of(seen) * math.sqrt(1 / count + 1 / max(1, len(seen)))
    return Range(count * mean * max(0.0, 1 - error), count * mean * (1 + error))


def left_of(mean_s: float, spread: float, elapsed_s: float) -> Range:
    """Of something that takes so long on average, and has been under way for a while."""
    low = mean_s * (1 - EIGHTY * spread) - elapsed_s
    high = mean_s * (1 + EIGHTY * spread) - elapsed_s
    return Range(max(0.0, low), max(high, OVERDUE * (elapsed_s - mean_s)))


def spread_of(seconds: Sequence[float]) -> float:
    """Standard deviation by mean."""
    if len(seconds) < 3 or not statistics.fmean(seconds):
        return UNSEEN_SPREAD
    return max(LEAST_SPREAD, statistics.stdev(seconds) / statistics.fmean(seconds))


def start_left(ends: Sequence[Range | None], place: int) -> Range | None:
    """Until a task is admitted that so many ends of its tenant's running tasks let in.

    ends: of those that run. place: 1 is next. None if an end that matters is not known.
    """
    known = [end for end in ends if end is not None]
    if not 1 <= place <= len(known) or len(known) < len(ends):
        return None
    lows, highs = sorted(end.low_s for end in known), sorted(end.high_s for end in known)
    return Range(lows[place - 1], highs[place - 1])


def told(found: Range) -> str:
    """40–90 s, about 5 min, 1.2–1.6 h: as precise as it is known, one unit."""
    size_s, unit, digits = _unit(found.high_s)
    low, high = (f"{value / size_s:.{digits}f}" for value in (found.low_s, found.high_s))
    return f"about {high} {unit}" if low == high else f"{low}–{high} {unit}"


def _unit(seconds: float) -> tuple[float, str, int]:
    """(its size in seconds, name, digits after the point)."""
    if seconds < 100:
        return 1.0, "s", 0
    if seconds < 5_400:
        return 60.0, "min", 0 if seconds >= 600 else 1
    if seconds < 172_800:
        return 3_600.0, "h", 1
    return 86_400.0, "days", 1
