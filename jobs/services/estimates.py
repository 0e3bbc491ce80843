"""How long a task's step, and the task, will still take: pure arithmetic on what was seen.

Every answer is a range that four of five outcomes should lie in, if things go on as they have
lately, or else a sentence that says why there is none. It knows nothing of rows. What it cannot
know: what others will submit, and that answers grow longer as a policy learns.
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
DRIFT = 0.15  # of the mean, as others come and end: no number of steps evens that out
GUESSED_SPREAD = 1.5  # of what is only known of others' tasks: theirs may differ several times
# Who looks at a wait of unknown length at any moment of it finds five of six times at least a sixth
# of it over, so that it lasts at most five times as long again.
HELD_AGAIN = 5.0
HELD_FROM_S = 2.0  # every step waits for the next plan
NOBODY = "nobody can say: "
NOT_BEFORE = "not before "  # begins a bar that tells a time, which somebody can say


@dataclass(frozen=True)
class Range:
    """Seconds from now."""

    low_s: float
    high_s: float  # infinite: nobody can say

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
    is_guessed: bool = False  # rollout_s or pass_s are those of others' tasks
    # Of a step of which nothing was ever sent, or that is not open yet
    is_held: bool = False
    held_s: float = 0.0  # for so long
    round_s: float = 0.0  # in which the trainers do one step of every task that runs
    num_preferred: int = 0  # of the tenant's own tasks, those that go first
    # Why nothing of the task may begin, be it its next step, or until when; "" if it may
    bar: str = ""
    later_bar: str = ""  # the same of the steps after the present one


def step_left(facts: Facts) -> Range | None:
    """Until the version of the oldest live step is committed; None if nobody can say."""
    if why_no_step(facts):
        return None
    spread = _spread(facts)
    training = left_of(facts.pass_s, spread, 0.0)
    if facts.stage == "training":
        return left_of(facts.pass_s, spread, facts.elapsed_s)
    if facts.stage == "ready":
        return Range(facts.line_s, facts.line_s) + training
    # What stands in the line now is gone by then, or is not.
    line = Range(0.0, facts.line_s)
    rollout = left_of(facts.rollout_s, spread, facts.elapsed_s)
    return _hold_left(facts) + rollout + line + training


def task_left(facts: Facts) -> Range | None:
    """Until the last version is committed; None if nobody can say."""
    step = step_left(facts)
    if step is None or why_no_task(facts):
        return None
    return step + _cycles_left(facts)


def why_no_step(facts: Facts) -> str:
    """Why `step_left` is None, as a sentence; "" if it is a range."""
    if not facts.steps_left:
        return f"{NOBODY}all steps are done, and the task is about to end"
    if facts.bar and facts.stage != "training":
        return _barred(facts.bar)
    if not facts.rollout_s or not facts.pass_s:
        return f"{NOBODY}no step was trained yet"
    if facts.is_held and facts.num_preferred and facts.held_s > _usual_hold(facts).high_s:
        num = facts.num_preferred
        go = "goes" if num == 1 else "go"
        return f"{NOBODY}{num} of your tasks with higher priority {go} first"
    return ""


def why_no_task(facts: Facts) -> str:
    """Why `task_left` is None, as a sentence; "" if it is a range."""
    later = facts.bar or facts.later_bar
    return why_no_step(facts) or (_barred(later) if later and facts.steps_left > 1 else "")


def _barred(bar: str) -> str:
    return bar if bar.startswith(NOT_BEFORE) else f"{NOBODY}{bar}"


def _usual_hold(facts: Facts) -> Range:
    """How long a step of the task is held back, as the distances of its commits tell: what is left
    of them without rollout and training. From 0, where there are none."""
    if not facts.cycles_s:
        return Range(0.0, HELD_FROM_S)
    cycle_s = statistics.median(facts.cycles_s)
    mean = max(0.0, cycle_s - facts.rollout_s - facts.pass_s)
    error = EIGHTY * spread_of(facts.cycles_s) * cycle_s
    return Range(max(0.0, mean - error), max(HELD_FROM_S, mean + error))


def _hold_left(facts: Facts) -> Range:
    """Until the first of the step is sent. It may last as long as the task's own usually do, or
    until the trainers have done a step of everybody's; whatever lasts longer than that has no
    bound but the time that it has lasted already."""
    if not facts.is_held:
        return Range(0.0, 0.0)
    usual = _usual_hold(facts)
    # Of one that is held only now, and never was, there is no reason to expect a whole round.
    round_s = facts.round_s if facts.held_s > HELD_FROM_S else 0.0
    bound_s = max(usual.high_s, round_s)
    beyond_s = facts.held_s - (usual.low_s if facts.cycles_s else 0.0)
    high = max(bound_s - facts.held_s, HELD_AGAIN * max(0.0, beyond_s))
    return Range(max(0.0, usual.low_s - facts.held_s), high)


def _cycles_left(facts: Facts) -> Range:
    """Of the steps after the present one. The more of them, the more chance evens out; what does
    not is how well their mean is known from so few. If the present one is held back for longer
    than usual, so may those be."""
    count = facts.steps_left - 1
    if count < 1:
        return Range(0.0, 0.0)
    seen = facts.cycles_s
    work_s = facts.rollout_s + facts.pass_s
    mean = statistics.median(seen) if seen else work_s
    longest = max(mean, facts.held_s + work_s) if facts.is_held else mean
    if len(seen) < 3:  # the first steps of all, begun while others' were not, came sooner
        longest = max(longest, facts.round_s)
    chance = _spread(facts) * math.sqrt(1 / count + 1 / max(1, len(seen)))
    error = EIGHTY * math.hypot(chance, DRIFT)
    return Range(count * mean * max(0.0, 1 - error), count * longest * (1 + error))


def _spread(facts: Facts) -> float:
    return GUESSED_SPREAD if facts.is_guessed else spread_of(facts.cycles_s)


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


NEVER = Range(math.inf, math.inf)  # as far as anybody knows
SOME_DAY = Range(0.0, math.inf)


def start_left(ends: Sequence[Range], place: int) -> Range | None:
    """Until a task is admitted that so many ends of its tenant's tasks let in.

    ends: of those that run, `SOME_DAY` or `NEVER` where nobody can say. place: so many of them, 1
    if the first does. If none of them says anything, None.
    """
    if place < 1 or not ends:
        return None
    lows, highs = (sorted(getattr(end, name) for end in ends) for name in ("low_s", "high_s"))
    if place <= len(ends):
        found = Range(lows[place - 1], highs[place - 1])
    else:  # some that are queued yet must end before, and nobody knows how long they take
        found = Range(lows[0], math.inf)
    is_telling = found.high_s < math.inf or 1.0 <= found.low_s < math.inf
    return found if is_telling else None


def told(found: Range) -> str:
    """40–90 s, about 5 min, up to 2.4 min, at least 1.2 h: as precise as it is known, one unit."""
    is_bounded = found.high_s < math.inf
    size_s, unit, digits = _unit(found.high_s if is_bounded else found.low_s)
    low, high = (f"{value / size_s:.{digits}f}" for value in (found.low_s, found.high_s))
    if not is_bounded:
        return f"at least {low} {unit}"
    if not float(low):
        return f"up to {high if float(high) else 1} {unit}"
    return f"about {high} {unit}" if low == high else f"{low}–{high} {unit}"


def told_when(found: Range) -> str:
    """in 40–90 s, within 2.4 min, in at least 1.2 h."""
    text = told(found)
    within = text.removeprefix("up to ")
    return f"in {text}" if within == text else f"within {within}"


def _unit(seconds: float) -> tuple[float, str, int]:
    """(its size in seconds, name, digits after the point)."""
    if seconds < 100:
        return 1.0, "s", 0
    if seconds < 5_400:
        return 60.0, "min", 0 if seconds >= 600 else 1
    if seconds < 172_800:
        return 3_600.0, "h", 1
    return 86_400.0, "days", 1
