"""What the task would use: tokens, time, quota. Every figure is an estimate from the samples."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from ..config import TaskConfig
from .outcomes import Outcome

FASTER_IN_BATCH = 2.0  # a task's batch against the fewer sequences of a check, at the most
# Tokens that a training pass computes, prompts included, in the time in which one is generated;
# measured on 2 cores, where it is least. Devices that compute faster than they read do more; the
# most is a guess, and counts only until something has been trained on the machine.
TRAINED_PER_GENERATED = 2.0
MOST_TRAINED_PER_GENERATED = 16.0
BEGINNING_S = 5.0  # until a task's first group is dispatched, at the most


@dataclass(frozen=True)
class Speeds:
    """Of the machine, as it was during the check."""

    tokens_per_s: float  # generated, all engines of the base model together; 0: not known
    num_at_once: int = 0  # sequences that the check had in flight; 0: not known
    num_other_tasks: int = 0  # that share the engines
    train_tokens_per_s: float = 0.0  # generated ones, in lately trained steps; 0: not known


@dataclass(frozen=True)
class Costs:
    """Of the task as it would be submitted. low, high: ranges; None: not known."""

    step_generated_low: float  # tokens
    step_generated_high: float  # if what was cut off in the check goes on to the limit
    step_tokens_low: float  # as quotas count them: prompts once a group, all that follows
    step_tokens_high: float
    task_tokens_low: float
    task_tokens_high: float
    seconds_low: float | None  # of the whole task
    seconds_high: float | None
    tokens_per_s: float
    num_other_tasks: int
    train_tokens_per_s: float  # 0: nothing was trained lately, so that training is guessed
    epochs: float | None  # how often each usable prompt is seen
    tokens_per_day: int  # the tenant's quota; 0: none
    tokens_left_today: int | None  # None: no quota
    days_low: int | None  # that the quota stretches the task over
    days_high: int | None


def estimate_costs(
    outcomes: Sequence[Outcome],
    config: TaskConfig,
    speeds: Speeds,
    *,
    mean_prompt: float,
    num_prompts: int,
    tokens_per_day: int,
    tokens_today: int,
    least_trained: float = 1.0,
) -> Costs | None:
    """None if nothing was generated.

    mean_prompt: tokens; num_prompts: usable ones, in all; least_trained: share of completions that
    training passes see at the least, which leave out groups that teach nothing.
    """
    made = [one for one in outcomes if one.is_generated]
    if not made:
        return None
    sequences = config.sequences_per_step
    observed = sum(one.num_observed for one in made) / len(made)
    generated = [sequences * length for length in _mean_lengths(made, config)]
    step = [config.batch_size * mean_prompt + sequences * observed + one for one in generated]
    task = [config.max_steps * tokens for tokens in step]
    trained = [least_trained * generated[0], generated[1]]
    computed = [  # a prompt once for all its completions, or with each of them
        least_trained * step[0],
        generated[1] + sequences * (mean_prompt + observed),
    ]
    faster = min(FASTER_IN_BATCH, max(1.0, sequences / max(1, speeds.num_at_once)))
    seconds = [
        config.max_steps * one
        for one in _step_seconds(generated, trained, computed, faster, speeds)
    ]
    left = max(0, tokens_per_day - tokens_today) if tokens_per_day else None
    days = [_days(tokens, tokens_per_day, left or 0) for tokens in task]
    return Costs(
        step_generated_low=generated[0],
        step_generated_high=generated[1],
        step_tokens_low=step[0],
        step_tokens_high=step[1],
        task_tokens_low=task[0],
        task_tokens_high=task[1],
        seconds_low=seconds[0] if seconds else None,
        seconds_high=BEGINNING_S + seconds[1] if seconds else None,
        tokens_per_s=speeds.tokens_per_s,
        num_other_tasks=speeds.num_other_tasks,
        train_tokens_per_s=speeds.train_tokens_per_s,
        epochs=config.max_steps * config.batch_size / num_prompts if num_prompts else None,
        tokens_per_day=tokens_per_day,
        tokens_left_today=left,
        days_low=days[0],
        days_high=days[1],
    )


def _mean_lengths(made: Sequence[Outcome], config: TaskConfig) -> tuple[float, float]:
    """Generated tokens of an attempt: as seen, and if what was cut goes on to the task's limit."""
    limit = config.max_completion_length
    longest = [
        max(one.num_tokens, limit - one.num_observed)
        if one.stop_reason == "length"
        else one.num_tokens
        for one in made
    ]
    return sum(one.num_tokens for one in made) / len(made), sum(longest) / len(made)


def _step_seconds(
    generated: Sequence[float],
    trained: Sequence[float],
    computed: Sequence[float],
    faster: float,
    speeds: Speeds,
) -> tuple[float, ...]:
    """Low and high, of generation and training in turn; () where no speed is known.

    Tokens, low and high. generated: of a step; trained: of these, in its training pass; computed:
    there in all. faster: in the task's batches than in the check, at the most.
    """
    if not speeds.tokens_per_s:
        return ()
    low = generated[0] / (faster * speeds.tokens_per_s)
    high = (1 + speeds.num_other_tasks) * generated[1] / speeds.tokens_per_s
    if speeds.train_tokens_per_s:
        training = [tokens / speeds.train_tokens_per_s for tokens in trained]
    else:
        ratios = (MOST_TRAINED_PER_GENERATED, TRAINED_PER_GENERATED)
        training = [
            tokens / (ratio * speeds.tokens_per_s)
            for tokens, ratio in zip(computed, ratios, strict=True)
        ]
    return low + training[0], high + training[1]


def _days(tokens: float, tokens_per_day: int, left: int) -> int | None:
    """Days (UTC) until the quota has sufficed, today counted."""
    if not tokens_per_day:
        return None
    return 1 if tokens <= left else 1 + math.ceil((tokens - left) / tokens_per_day)
