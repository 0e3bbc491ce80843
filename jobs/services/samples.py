"""Sequences that a check has generated: asked for through the rollout queue, answered in Redis.

They go through the engine as any others, and belong to no task, step or lease: what is lost is
asked for again, or goes missing from the check's figures. What comes for a check that is over is
dropped.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import msgpack
from django.conf import settings

from engine.types import Generation, pack_ids
from jobs.services import dispatch
from jobs.services.joins import redis

KEPT_S = 900  # Redis forgets what nobody closed
PREFIX = "sample:"  # of a request's id in the engine; trajectories' begin with a group's


@dataclass(frozen=True)
class Wanted:
    """A sequence to be continued."""

    id: str  # unique in its check
    ids: Sequence[int]  # all tokens so far
    seed: int
    max_new_tokens: int


@dataclass(frozen=True)
class Source:
    """What the sequences of a check have in common."""

    preflight: str
    base_model: str
    digest: str  # of the adapter
    adapter: str  # its key in the artifact store
    temperature: float


def _wanted(preflight: str) -> str:
    return f"{settings.REDIS_PREFIX}:samples:wanted:{preflight}"


def _results(preflight: str) -> str:
    return f"{settings.REDIS_PREFIX}:samples:results:{preflight}"


def keep_open(preflight: str) -> None:
    """Say that a check wants its sequences, for another quarter of an hour. Raises: RedisError."""
    redis.set(_wanted(preflight), 1, ex=KEPT_S)


def is_open(preflight: str) -> bool:
    """Raises: RedisError."""
    return bool(redis.exists(_wanted(preflight)))


def close(preflight: str) -> None:
    """Drop whatever still comes for a check. Raises: RedisError."""
    redis.delete(_wanted(preflight), _results(preflight))


def ask(source: Source, wanted: Sequence[Wanted]) -> None:
    """Send sequences to the rollout workers of their base model."""
    message = {
        **asdict(source),
        "sequences": [{**asdict(one), "ids": pack_ids(list(one.ids))} for one in wanted],
    }
    send(message)


def send(message: dict[str, Any]) -> None:
    """Send, or send back, a message of `ask`."""
    dispatch.send("rollout.sample", f"rollout.{message['base_model']}", message, retry=True)


def answer(preflight: str, id: str, generation: Generation) -> None:
    """Give the check what was generated. Raises: RedisError."""
    fields = {**asdict(generation), "id": id, "prompt_logprobs": ()}
    with redis.pipeline() as pipe:
        pipe.rpush(_results(preflight), msgpack.packb(fields))
        pipe.expire(_results(preflight), KEPT_S)
        pipe.execute()


def answers(preflight: str, timeout_s: float) -> Iterator[Generation]:
    """What has come, under the ids of `Wanted`; waits so long for the first. Raises: RedisError."""
    first = redis.blpop([_results(preflight)], timeout=timeout_s)
    data: Any = first[1] if first else None
    while data is not None:
        fields = msgpack.unpackb(data)
        tuples = {name: tuple(value) for name, value in fields.items() if isinstance(value, list)}
        yield Generation(**{**fields, **tuples})
        data = redis.lpop(_results(preflight))
