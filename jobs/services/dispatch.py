"""The only door between stages: every stage call leaves through `send`.

Rows are the truth, so planner and pages do not retry: a call that could not be sent is one whose
lease runs out. Workers, which hold the only copy of what they send, retry for a minute.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from typing import Any

from celery.exceptions import OperationalError as BrokerError
from redis.exceptions import RedisError

from engine.config import TaskConfig
from engine.errors import ArtifactError
from engine.prompt_order import trajectory_seed
from engine.types import Trajectory
from jobs.models import Group, PolicyVersion
from jobs.services import groups, joins
from jobs.services.heartbeats import living_names
from jobs.services.payloads import pack_trajectory, read_prompt
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
        "max_turns": config.max_turns,
        "temperature": config.temperature,
        "has_turns": config.environment.has_turns,
    }


EPISODE = (
    *("row", "base_model", "adapter", "has_turns"),
    *("max_new_tokens", "max_turns", "temperature"),
)


def turn_message(trajectory: Trajectory, seed: int, episode: Mapping[str, Any]) -> dict[str, Any]:
    """What carries one trajectory from stage to stage, and all that either needs to go on with it.

    seed: the trajectory's, of its first turn. episode: a message that has the keys in EPISODE.
    """
    carried = {name: episode[name] for name in EPISODE}
    return {**carried, "trajectory": pack_trajectory(trajectory), "seed": seed}


def send_turn(trajectory: Trajectory, message: Mapping[str, Any]) -> bool:
    """Send a trajectory back to be generated further; False if its attempt is dead.

    message: of `turn_message`, that it came with. Goes to the worker that generated the last turn
    and may still hold its KV, while that one lives; else to any of the base model's.
    """
    key, queue = trajectory.key, f"rollout.{message['base_model']}"
    worker = trajectory.turns[-1].worker
    if worker in living_names():
        queue = f"{queue}.{worker}"
    if not joins.move(key.group, key.attempt, [key.index], f"queue:{queue}"):
        return False
    send("rollout.resume", queue, turn_message(trajectory, message["seed"], message), retry=True)
    return True


def take_all(queue: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Take every stage call out of a queue that nobody else reads: (name, message)."""
    with app.connection_for_read() as connection:
        channel = connection.default_channel
        while raw := channel.basic_get(queue, no_ack=True):
            raw.accept = {"application/x-msgpack"}
            yield raw.headers["task"], raw.payload[0][0]
