"""One turn of an episode: the environment answers it, and what is over is graded.

A reward function or an environment that fails leaves its trajectory ungraded, with the reason.
Knows nothing of queues: `jobs.workers.environment` brings trajectories and sends them on.
"""

from __future__ import annotations

import asyncio
import logging
import time
from dataclasses import replace
from typing import Any

from engine.environments import Context, Environment, Reply
from engine.environments.activity import ENVIRONMENT, GRADING, waiting_for
from engine.environments.episode import last_answer, limit_reached, told, with_observation
from engine.rewards import Grade, Sample, grade, grader_digest
from engine.types import Trajectory
from jobs.services import failures

ANSWER_S = 600.0  # tools and graders have limits of their own; this is for what forgot one

log = logging.getLogger(__name__)


async def answer(
    trajectory: Trajectory, message: dict[str, Any], environment: Environment, context: Context
) -> tuple[Trajectory, bool]:
    """The trajectory with the answer to its last turn, and whether its episode is over.

    message: of `dispatch.turn_message`. One that is over has its text and its rewards: those of its
    last answer. Raises nothing but CancelledError.
    """
    started_at = time.time()
    try:
        with waiting_for(ENVIRONMENT):
            async with asyncio.timeout(ANSWER_S):
                reply = await environment.answer(trajectory, message["row"], context)
    except Exception as error:  # it is the environment's fault, and this trajectory's alone
        log.warning("no answer to %s", trajectory.key, exc_info=True)
        failed = replace(trajectory, stop_reason="error")
        result = Grade(None, {}, f"The environment failed: {failures.told(error)}"[:500])
        text = context.chat.decode(trajectory.completion_ids)
        return _graded(failed, text, context, result, started_at), True
    if not reply.is_over:
        limits = message["max_turns"], message["max_new_tokens"]
        reason = limit_reached(trajectory, reply, *limits)
        if not reason:
            return with_observation(trajectory, reply), False
        trajectory = replace(trajectory, stop_reason=reason)
    elif reply.stop_reason:
        trajectory = replace(trajectory, stop_reason=reply.stop_reason)
    over = await _over(trajectory, reply, message["row"], environment, context, started_at)
    return over, True


async def _over(
    trajectory: Trajectory,
    reply: Reply,
    row: dict[str, Any],
    environment: Environment,
    context: Context,
    started_at: float,
) -> Trajectory:
    trajectory = told(trajectory, reply)
    last = reply.answer
    if last is None:
        last = context.chat.decode(last_answer(trajectory))
    transcript = context.chat.decode(trajectory.completion_ids)
    with waiting_for(GRADING):
        own = await _own_score(environment, trajectory)
        sample = Sample(last, row, transcript, _counts(trajectory), *own)
        result = await grade(context.graders, sample, context.services)
    return _graded(trajectory, transcript, context, result, started_at)


async def _own_score(environment: Environment, trajectory: Trajectory) -> tuple[float | None, str]:
    """The score that some environments give by themselves, or why there is none."""
    finish = getattr(environment, "finish", None)
    if finish is None:
        return None, ""
    try:
        async with asyncio.timeout(ANSWER_S):
            return await finish(trajectory), ""
    except Exception as error:
        log.warning("no score of the environment for %s", trajectory.key, exc_info=True)
        return None, failures.told(error)


def _counts(trajectory: Trajectory) -> dict[str, int]:
    """What graders may know of the episode."""
    calls = [call for turn in trajectory.turns for call in turn.calls]
    return {
        "num_turns": len(trajectory.turns),
        "num_tool_calls": len(calls),
        "num_tool_errors": sum(bool(call.error) for call in calls),
    }


def _graded(
    trajectory: Trajectory, text: str, context: Context, result: Grade, started_at: float
) -> Trajectory:
    """text: of everything after the prompt."""
    return replace(
        trajectory,
        text=text,
        reward=result.reward,
        rewards=result.rewards,
        error=result.error,
        graders_digest=grader_digest(context.graders),
        graded_started_at=started_at,
        graded_at=time.time(),
    )
