"""The environment stage: answers a trajectory's last turn, and sends it on.

An episode that goes on returns to the rollout as a later turn. One that is over is graded and joins
its group; the last of a group ends it. A grader or an environment that fails leaves its trajectory
ungraded, with the reason; it never ends the call.
"""

from __future__ import annotations

import asyncio
import logging
import time
from dataclasses import replace
from functools import lru_cache
from typing import Any

from engine.environments import ENVIRONMENTS, Context, Reply
from engine.environments.episode import last_answer, limit_reached, told, with_observation
from engine.rewards import Grade, Sample, grade, parse_graders
from engine.types import Trajectory
from jobs.models import BaseModel, Task
from jobs.services import dispatch, failures, groups, joins
from jobs.services.payloads import unpack_trajectory
from jobs.services.preparation import chat_tokenizer
from jobs.workers import hosting
from marlaas_site.celery import app

log = logging.getLogger(__name__)


@app.task(name="environment.interact")
def interact(message: dict[str, Any]) -> None:
    """Answer the last turn of a trajectory: it goes on, or joins its group."""
    trajectory = unpack_trajectory(message["trajectory"])
    try:
        _interact(trajectory, message)
    except Exception:
        joins.give_up(trajectory.key.group, trajectory.key.attempt)
        raise


def _interact(trajectory: Trajectory, message: dict[str, Any]) -> None:
    key = trajectory.key
    place = f"worker:{hosting.incarnation()}"
    if not joins.move(key.group, key.attempt, [key.index], place):
        groups.count_late(key.group)
        return
    answered, is_over = asyncio.run(answer(trajectory, message))
    if not is_over:
        if not dispatch.send_turn(answered, message):
            groups.count_late(key.group)
        return
    outcome = joins.join(answered)
    if outcome == "late":
        groups.count_late(key.group)
    elif outcome == "full":
        _finish(key.group, key.attempt)


async def answer(trajectory: Trajectory, message: dict[str, Any]) -> tuple[Trajectory, bool]:
    """The trajectory with the answer to its last turn, and whether its episode is over.

    One that is over has its text and its rewards: those of its last answer.
    """
    started_at = time.time()
    context = _context(trajectory.key.task, message["base_model"])
    environment = ENVIRONMENTS[message["environment"]]
    try:
        reply = await environment.answer(trajectory, message["row"], context)
    except Exception as error:  # it is the environment's fault, and this trajectory's alone
        log.warning("no answer to %s", trajectory.key, exc_info=True)
        failed = replace(trajectory, stop_reason="error")
        result = Grade(None, {}, f"The environment failed: {failures.told(error)}"[:500])
        return _graded(failed, context, result, started_at), True
    if not reply.is_over:
        limits = message["max_turns"], message["max_new_tokens"]
        reason = limit_reached(trajectory, reply, *limits)
        if not reason:
            return with_observation(trajectory, reply), False
        trajectory = replace(trajectory, stop_reason=reason)
    return await _over(trajectory, reply, message["row"], context, started_at), True


async def _over(
    trajectory: Trajectory, reply: Reply, row: dict[str, Any], context: Context, started_at: float
) -> Trajectory:
    last = context.chat.decode(last_answer(trajectory))
    sample = Sample(last, row, context.chat.decode(trajectory.completion_ids))
    result = await grade(context.graders, sample, context.services)
    return _graded(told(trajectory, reply), context, result, started_at)


def _graded(
    trajectory: Trajectory, context: Context, result: Grade, started_at: float
) -> Trajectory:
    return replace(
        trajectory,
        text=context.chat.decode(trajectory.completion_ids),
        reward=result.reward,
        rewards=result.rewards,
        error=result.error,
        graded_started_at=started_at,
        graded_at=time.time(),
    )


@lru_cache(maxsize=256)
def _context(task_id: str, base_model: str) -> Context:
    graders = Task.objects.values_list("graders", flat=True).get(pk=task_id)
    path = BaseModel.objects.values_list("path", flat=True).get(slug=base_model)
    return Context(chat_tokenizer(path), parse_graders(graders))


def _finish(group: str, attempt: int) -> None:
    try:
        trajectories = joins.collect(group, attempt)
        groups.finish_group(group, attempt, trajectories, hosting.name())
    except Exception as error:  # whatever it is, the group must not stay dispatched for ever
        log.exception("group %s could not be finished", group)
        groups.return_group(group, attempt, failures.told(error))
