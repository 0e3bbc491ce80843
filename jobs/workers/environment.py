"""The environment stage: grades a trajectory, joins its group, and ends the group when it is last.

A grader that fails leaves its trajectory ungraded, with the reason; it never ends the call.
"""

from __future__ import annotations

import logging
import time
from dataclasses import replace
from functools import lru_cache
from typing import Any

from engine.environments import ENVIRONMENTS
from engine.rewards import grade, parse_graders
from engine.types import Trajectory
from jobs.models import BaseModel, Task
from jobs.services import groups, joins
from jobs.services.failures import told
from jobs.services.payloads import unpack_trajectory
from jobs.services.preparation import chat_tokenizer
from jobs.workers import hosting
from marlaas_site.celery import app

ENVIRONMENT = ENVIRONMENTS["single_turn"]  # of every task so far

log = logging.getLogger(__name__)


@app.task(name="environment.interact")
def interact(message: dict[str, Any]) -> None:
    """Grade one finished trajectory and add it to its group."""
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
    outcome = joins.join(graded(trajectory, message["row"], message["base_model"]))
    if outcome == "late":
        groups.count_late(key.group)
    elif outcome == "full":
        _finish(key.group, key.attempt)


def graded(trajectory: Trajectory, row: dict[str, Any], base_model: str) -> Trajectory:
    """The trajectory with its text and its rewards."""
    started = time.time()
    reply = ENVIRONMENT.answer(trajectory, row)
    assert reply.is_over, "an episode of several turns has no way back to the rollout yet"
    ids = trajectory.completion_ids
    text = chat_tokenizer(_model_path(base_model)).decode(ids)
    result = grade(_graders(trajectory.key.task), text, row)
    return replace(
        trajectory,
        text=text,
        reward=result.reward,
        rewards=result.rewards,
        error=result.error,
        graded_started_at=started,
        graded_at=time.time(),
    )


@lru_cache(maxsize=256)
def _graders(task_id: str) -> Any:
    return parse_graders(Task.objects.values_list("graders", flat=True).get(pk=task_id))


@lru_cache(maxsize=32)
def _model_path(slug: str) -> str:
    return BaseModel.objects.values_list("path", flat=True).get(slug=slug)


def _finish(group: str, attempt: int) -> None:
    try:
        trajectories = joins.collect(group, attempt)
        groups.finish_group(group, attempt, trajectories, hosting.name())
    except Exception as error:  # whatever it is, the group must not stay dispatched for ever
        log.exception("group %s could not be finished", group)
        groups.return_group(group, attempt, told(error))
