"""How figures of a report relate, where two of them seem to contradict each other."""

from __future__ import annotations

from collections.abc import Iterator

from .costs import Costs
from .figures import counted, percent
from .outcomes import Samples
from .variance import ZeroVariance

WIDE = 3.0  # from the shortest time to the longest; above it the range is explained


def notes(
    samples: Samples | None, variance: ZeroVariance | None, costs: Costs | None, observations: str
) -> tuple[str, ...]:
    """Sentences for people. observations: what the environment's answers are called."""
    found: list[str] = []
    if samples:
        found += _lengths(samples, observations)
    if variance:
        found.append(_variance(variance))
    if costs:
        found += _time(costs)
    return tuple(found)


def _lengths(samples: Samples, observations: str) -> Iterator[str]:
    if samples.mean_observed:
        yield (
            "Lengths of completions are of what the policy itself generated;"
            f" {observations} are {samples.mean_observed:,.0f} more tokens on average, and count"
            f" towards the limit of {samples.max_new_tokens:,}."
        )


def _variance(found: ZeroVariance) -> str:
    seen, expected = percent(found.observed), percent(found.expected)
    bound = "at most " if found.is_bound else "about "
    if seen == expected:
        why = "as many as were seen"
    elif found.expected < found.observed:
        why = "fewer than were seen, because a few samples do not rule out a reward that is rare"
    else:
        why = "more than were seen, because a few samples do not show every kind of prompt"
    return (
        f"Of the {counted(found.num_groups, 'group')} of this check {seen} had one reward"
        f" throughout; of all groups of {found.group_size} in training {bound}{expected} are"
        f" expected to: {why}."
    )


def _time(costs: Costs) -> Iterator[str]:
    low, high = costs.seconds_low, costs.seconds_high
    if low is None or high is None or high <= WIDE * low:
        return
    reasons = []
    if costs.step_generated_high > 1.1 * costs.step_generated_low:
        reasons.append("completions that this check cut off go on to max_completion_length")
    if costs.num_other_tasks:
        reasons.append("the other tasks take their share all the time")
    if not costs.train_tokens_per_s:
        reasons.append(
            "training is as slow here as it is on few cores (nothing was trained lately, so its"
            " speed is not known)"
        )
    if reasons:
        yield f"The task takes the longer of the two times only if {', and if '.join(reasons)}."
