"""The only door between stages: every stage call leaves through `send`.

Rows are the truth, so planner and pages do not retry: a call that could not be sent is one whose
lease runs out. Workers, which hold the only copy of what they send, retry for a minute.
"""

from __future__ import annotations

import logging
from typing import Any

from celery.exceptions import OperationalError as BrokerError
from redis.exceptions import RedisError

from engine.config import TaskConfig
from engine.errors import ArtifactError
from engine.prompt_order import trajectory_seed
from jobs.models import Group, PolicyVersion
from jobs.services import groups, joins
from jobs.services.payloads import read_prompt
from marlaas_site.celery import app

log = logging.getLogger(__name__)


def send(name: str, queue: str, message: dict[str, Any], *, retry: bool = False) -> bool:
    """Send a stage call; False if the broker could not take it (only without `retry`)."""
    # Without the placeholders Celery puts the first kilobyte of a tenant's tokens into headers.
    options = {"queue": queue, "retry": retry, "argsrepr": "-", "kwargsrepr": "-"}
    try:
        app.send_task(name, (message,), **options)
    except (BrokerError, RedisError, OSError) as error:
        if retry:
            raise
        log.warning("%s not sent, its lease will tell: %s", name, error)
        return False
    return True


def send_group(group: Group, version: PolicyVersion) -> None:
    """Send all trajectories of a dispatched group to the rollout workers of its base model."""
    task = group.step.task
    queue = f"rollout.{task.base_model.slug}"
    try:
        message = group_message(group, version)
        joins.open_attempt(
            str(group.pk), group.attempt, task.config["group_size"], f"queue:{queue}"
        )
    except RedisError as error:
        log.warning("group %s not sent, its lease will tell: %s", group.pk, error)
        return
    except ArtifactError as error:
        groups.return_group(str(group.pk), group.attempt, str(error))
        return
    send("rollout.generate", queue, message)


def group_message(group: Group, version: PolicyVersion) -> dict[str, Any]:
    """What a rollout worker needs to generate a group, and an environment to grade it."""
    task, step = group.step.task, group.step
    config: TaskConfig = task.hyperparameters
    prompt = read_prompt(task.prompts_key, group.prompt_index)
    indexes = list(range(config.group_size))
    return {
        "task": str(task.pk),
        "step": step.number,
        "group": str(group.pk),
        "attempt": group.attempt,
        "base_model": task.base_model.slug,
        "version": version.number,
        "digest": version.digest,
        "adapter": version.key,
        "prompt": prompt["ids"],
        "row": prompt["row"],
        "indexes": indexes,
        "seeds": [trajectory_seed(config.seed, step.number, group.index, i) for i in indexes],
        "max_new_tokens": config.max_completion_length,
        "temperature": config.temperature,
    }
