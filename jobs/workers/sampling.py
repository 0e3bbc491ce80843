"""Samples on a rollout worker: sequences of checks, in the same batches as everybody's.

The engine knows them by ids of their own, and whatever becomes of them goes back to their check
through Redis. None is a trajectory: no group waits for it, and no lease.
"""

from __future__ import annotations

import logging
import threading
from typing import Any

from redis.exceptions import RedisError

from engine.errors import ArtifactError
from engine.types import AdapterRef, Generation, GenerationRequest, SamplingParams, unpack_ids
from jobs import artifacts
from jobs.services import samples
from jobs.services.failures import told

log = logging.getLogger(__name__)


class Samples:
    """Those that the engine of this process holds. Thread-safe."""

    def __init__(self, stop_ids: tuple[int, ...]) -> None:
        self._stop_ids = stop_ids
        self._lock = threading.Lock()
        self._held: dict[
            str, tuple[dict[str, Any], dict[str, Any]]
        ] = {}  # message, sequence: by id

    def requests(self, message: dict[str, Any]) -> list[GenerationRequest]:
        """What is to go into the engine for a message of `samples.ask`; they are held from now on.

        Nothing for a check that is over, and nothing twice. Raises: RedisError.
        """
        if not samples.is_open(message["preflight"]):
            return []
        try:
            path = artifacts.local_directory(message["adapter"])
        except ArtifactError as error:
            for one in message["sequences"]:
                failed = Generation(one["id"], finish_reason="error", error=told(error))
                samples.answer(message["preflight"], one["id"], failed)
            return []
        adapter = AdapterRef(message["preflight"], 0, message["digest"], str(path))
        new = {_id(message, one): (message, one) for one in message["sequences"]}
        with self._lock:
            new = {id: pair for id, pair in new.items() if id not in self._held}
            self._held |= new
        return [self._request(id, adapter, *pair) for id, pair in new.items()]

    def _request(
        self, id: str, adapter: AdapterRef, message: dict[str, Any], one: dict[str, Any]
    ) -> GenerationRequest:
        sampling = SamplingParams(
            max_new_tokens=one["max_new_tokens"],
            temperature=message["temperature"],
            stop_ids=self._stop_ids,
        )
        return GenerationRequest(id, adapter, tuple(unpack_ids(one["ids"])), sampling, one["seed"])

    def take(self, generation: Generation) -> bool:
        """Whether it is a sample; then it was sent to its check. Never raises."""
        if not generation.id.startswith(samples.PREFIX):
            return False
        with self._lock:
            found = self._held.pop(generation.id, None)
        if found and generation.finish_reason != "cancelled":
            message, one = found
            try:
                samples.answer(message["preflight"], one["id"], generation)
            except RedisError as error:  # the check asks again
                log.warning("%s not sent on: %s", generation.id, error)
        return True

    def let_go(self, requests: list[GenerationRequest]) -> None:
        """The engine did not take them."""
        with self._lock:
            for request in requests:
                self._held.pop(request.id, None)

    def give_back(self) -> None:
        """Put what the engine held into the queue, for a worker that lives."""
        with self._lock:
            held, self._held = list(self._held.values()), {}
        for message, one in held:
            samples.send({**message, "sequences": [one]})


def _id(message: dict[str, Any], one: dict[str, Any]) -> str:
    return f"{samples.PREFIX}{message['preflight']}:{one['id']}"
