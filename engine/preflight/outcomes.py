"""What became of the sampled completions, added up."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ..rewards import Grader
from ..rewards.code import Code
from ..rewards.length import Length
from ..rewards.math_answer import Math
from ..rewards.numeric import Numeric
from ..rewards.pattern import Regex
from ..rewards.schema import JSONSchema
from ..rewards.string_check import StringCheck
from ..rewards.tags import Format
from ..rewards.text_similarity import TextSimilarity
from .figures import at_share, mean

MAX_CALL_ERROR = 300  # characters of a tool's that are told
MAX_ERRORS = 5  # different ones that are told
# Scores are 0 … 1 by their definition; others' largest score is not known.
_BOUNDED = (*(Code, Format, JSONSchema, Length, Math, Numeric, Regex, StringCheck, TextSimilarity),)
_NEAR = 1e-9


@dataclass(frozen=True)
class Outcome:
    """One sampled attempt at one prompt."""

    prompt: int  # its place among the sampled ones
    index: int  # among its prompt's attempts
    reward: float | None = None  # None: ungraded
    rewards: Mapping[str, float | None] = field(default_factory=dict)  # by grader
    error: str = ""  # why it is ungraded, or was not generated
    stop_reason: str = ""  # as a trajectory's
    num_tokens: int = 0  # generated
    num_observed: int = 0  # tokens of the environment's answers
    rollout_s: float = 0.0  # seconds in the engine
    grading_s: float = 0.0  # seconds in the environment after the last turn
    num_turns: int = 0
    num_calls: int = 0
    num_failed_calls: int = 0
    call_errors: tuple[str, ...] = ()  # why these failed
    text: str = ""  # of the completion, the environment's answers included
    has_reference: bool = False  # a reference answer stands in the policy's last turn, whole

    @property
    def is_generated(self) -> bool:
        return self.num_turns > 0


@dataclass(frozen=True)
class Samples:
    """Figures of all sampled attempts. None where there is nothing to divide by."""

    num_prompts: int
    num_samples: int
    max_new_tokens: int  # of an attempt in this check
    is_shortened: bool  # max_new_tokens is less than the task's max_completion_length
    num_failed: int  # that were not generated
    failure: str  # why, for the first
    full_reward: float | None  # the most that the graders can give, where that is known
    mean_reward: float | None
    constant_reward: float | None  # that all graded attempts got; None: they differ
    solve_rate: float | None  # share with full reward; with more than 0 where none is known
    reward_std_within: float | None  # mean over prompts
    mean_rewards: dict[str, float | None]  # by grader
    ungraded_share: float | None
    ungraded_by_grader: dict[str, float]  # shares
    grading_errors: tuple[str, ...]  # different ones, the first
    num_environment_failures: int  # attempts that the environment could not answer
    environment_failure: str  # why, for the first
    truncated_share: float | None  # stop_reason is length
    observed_of_truncated: float | None  # mean tokens of the environment's answers in those
    length_min: int  # of what the policy generated, as all lengths here
    length_median: int
    length_p95: int
    length_max: int
    mean_length: float | None
    mean_observed: float | None
    rollout_s: float | None  # mean of an attempt
    grading_s: float | None
    latency_p50_s: dict[str, float]  # by grader
    latency_p95_s: dict[str, float]
    num_calls: int
    valid_call_share: float | None
    call_failure: str  # the most common reason of calls without a result
    num_call_failures: int  # calls that failed for that reason
    calling_share: float | None  # of attempts that call a tool at all
    num_unsolved_with_reference: int  # unsolved attempts of least reward that have the answer


def full_reward(graders: Sequence[Grader]) -> float | None:
    """The largest reward that these graders can give; None if that is not known."""
    if not all(isinstance(grader, _BOUNDED) or not grader.weight for grader in graders):
        return None
    return sum(max(0.0, grader.weight) for grader in graders)


def is_solved(reward: float, full: float | None) -> bool:
    return reward > _NEAR if full is None else reward >= full - _NEAR


def groups_of(outcomes: Sequence[Outcome]) -> list[list[float]]:
    """Rewards of graded attempts, by prompt."""
    found: dict[int, list[float]] = {}
    for outcome in outcomes:
        if outcome.reward is not None:
            found.setdefault(outcome.prompt, []).append(outcome.reward)
    return list(found.values())


def summarise(
    outcomes: Sequence[Outcome],
    graders: Sequence[Grader],
    *,
    max_new_tokens: int,
    is_shortened: bool,
    latencies_s: Mapping[str, Sequence[float]],
) -> Samples:
    """Add up. latencies_s: of each score, by grader."""
    made = [one for one in outcomes if one.is_generated]
    rewards = [one.reward for one in made if one.reward is not None]
    unanswered = [one for one in made if one.stop_reason == "error"]
    answered = [one for one in made if one.stop_reason != "error"]
    ungraded = [one for one in answered if one.reward is None]
    groups = [group for group in groups_of(made) if len(group) > 1]
    lengths = sorted(one.num_tokens for one in made)
    truncated = [one for one in made if one.stop_reason == "length"]
    ordered = {name: sorted(seconds) for name, seconds in latencies_s.items() if seconds}
    num_calls = sum(one.num_calls for one in made)
    call_failure, num_call_failures = _commonest(made)
    full = full_reward(graders)
    names = [grader.name for grader in graders]
    return Samples(
        num_prompts=len({one.prompt for one in outcomes}),
        num_samples=len(outcomes),
        max_new_tokens=max_new_tokens,
        is_shortened=is_shortened,
        num_failed=len(outcomes) - len(made),
        failure=next((one.error for one in outcomes if not one.is_generated), ""),
        full_reward=full,
        mean_reward=mean(rewards),
        constant_reward=rewards[0] if len(set(rewards)) == 1 else None,
        solve_rate=mean(is_solved(reward, full) for reward in rewards),
        reward_std_within=mean(statistics.pstdev(group) for group in groups),
        mean_rewards={name: _mean_score(made, name) for name in names},
        ungraded_share=mean(one.reward is None for one in made),
        ungraded_by_grader=_ungraded(answered, names),
        grading_errors=tuple(dict.fromkeys(one.error for one in ungraded))[:MAX_ERRORS],
        num_environment_failures=len(unanswered),
        environment_failure=next((one.error for one in unanswered), ""),
        truncated_share=len(truncated) / len(made) if made else None,
        observed_of_truncated=mean(one.num_observed for one in truncated),
        length_min=lengths[0] if lengths else 0,
        length_median=int(at_share(lengths, 0.5)),
        length_p95=int(at_share(lengths, 0.95)),
        length_max=lengths[-1] if lengths else 0,
        mean_length=mean(lengths),
        mean_observed=mean(one.num_observed for one in made),
        rollout_s=mean(one.rollout_s for one in made),
        grading_s=mean(one.grading_s for one in made),
        latency_p50_s={name: at_share(seconds, 0.5) for name, seconds in ordered.items()},
        latency_p95_s={name: at_share(seconds, 0.95) for name, seconds in ordered.items()},
        num_calls=num_calls,
        valid_call_share=1 - sum(one.num_failed_calls for one in made) / num_calls
        if num_calls
        else None,
        call_failure=call_failure,
        num_call_failures=num_call_failures,
        calling_share=mean(one.num_calls > 0 for one in made),
        num_unsolved_with_reference=_missed(made, full),
    )


def _commonest(made: Sequence[Outcome]) -> tuple[str, int]:
    """The most common reason why calls gave no result, and how many it stopped."""
    reasons = Counter(error[:MAX_CALL_ERROR] for one in made for error in one.call_errors)
    return reasons.most_common(1)[0] if reasons else ("", 0)


def _mean_score(made: Sequence[Outcome], name: str) -> float | None:
    scores = (one.rewards.get(name) for one in made)
    return mean(score for score in scores if score is not None)


def _ungraded(made: Sequence[Outcome], names: Sequence[str]) -> dict[str, float]:
    return {
        name: sum(one.rewards.get(name) is None for one in made) / len(made)
        for name in names
        if made
    }


def _missed(made: Sequence[Outcome], full: float | None) -> int:
    """Unsolved attempts that have the answer and get the least reward there was."""
    least = min((one.reward for one in made if one.reward is not None), default=0.0)
    if is_solved(least, full):
        return 0
    return sum(one.has_reference and one.reward == least for one in made)
