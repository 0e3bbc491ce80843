"""The rollout stage: hands groups to the engine, sends what it generates on to the environment.

`generate` only hands over, and blocks while the engine is full: that is the back-pressure, the rest
waits in the queue. The engine's completions go to an outbox; one sender thread publishes them.
Nothing here waits for a sequence. At SIGTERM what the engine still holds goes back to the queue.
"""

from __future__ import annotations

import logging
import os
import queue
import signal
import threading
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from django.conf import settings
from django.db import close_old_connections
from redis.exceptions import RedisError

from engine.errors import ArtifactError
from engine.types import (
    AdapterRef,
    Generation,
    GenerationRequest,
    SamplingParams,
    Trajectory,
    TrajectoryKey,
    Turn,
    pack_floats,
    pack_ids,
    unpack_ids,
)
from jobs import artifacts
from jobs.models import BaseModel
from jobs.services import dispatch, groups, joins
from jobs.services.payloads import pack_trajectory
from jobs.workers import hosting
from jobs.workers.canaries import Canaries
from marlaas_site.celery import app

STALE_CHECK_S = 1.0

log = logging.getLogger(__name__)


@app.task(name="rollout.generate")
def generate(message: dict[str, Any]) -> None:
    """Take a group (or what is left of one) into the engine."""
    try:
        host().take(message)
    except Exception:  # it must not seem to be here for ever
        joins.give_up(message["group"], message["attempt"])
        raise


@dataclass
class _Held:
    """A group in the engine: its message, and which trajectories are still to come."""

    message: dict[str, Any]
    unfinished: set[int]


class RolloutHost:
    """The engine of this process, and what it holds for whom."""

    def __init__(self, engine_thread: Callable[..., Any], stop_ids: tuple[int, ...]) -> None:
        """engine_thread: called with the completion callback, returns a started EngineThread."""
        self._stop_ids = stop_ids
        self._held: dict[tuple[str, int], _Held] = {}
        self._canaries = Canaries()
        self._lock = threading.Lock()
        self._outbox: queue.Queue[list[Generation]] = queue.Queue()
        self._leaving = threading.Event()
        self.engine = engine_thread(self._outbox.put)
        self._threads = [
            threading.Thread(target=work, name=work.__name__, daemon=True)
            for work in (self._send_finished, self._drop_stale)
        ]
        for thread in self._threads:
            thread.start()

    @property
    def is_whole(self) -> bool:
        """Whether all its threads live, or it is leaving."""
        threads_live = all(thread.is_alive() for thread in self._threads)
        return self._leaving.is_set() or (threads_live and self.engine.is_alive)

    def take(self, message: dict[str, Any]) -> None:
        """Hand a message's trajectories to the engine; waits while it is full."""
        key = (message["group"], message["attempt"])
        if not joins.move(*key, message["indexes"], f"worker:{hosting.incarnation()}"):
            groups.count_late(message["group"])
            return
        try:
            requests = [self._request(message, index) for index in message["indexes"]]
        except ArtifactError as error:
            groups.return_group(*key, str(error))
            return
        with self._lock:
            if key in self._held:  # the same message twice
                return
            self._held[key] = _Held(message, set(message["indexes"]))
        try:
            canaries = self._canaries.requests(requests[0].adapter)
            is_taken = self.engine.submit([*canaries, *requests])
        except Exception:
            with self._lock:
                self._held.pop(key, None)
            raise
        if not is_taken:
            self._give_back(key)

    def _request(self, message: dict[str, Any], index: int) -> GenerationRequest:
        place = message["indexes"].index(index)
        return GenerationRequest(
            id=_id((message["group"], message["attempt"]), index),
            adapter=AdapterRef(
                task=message["task"],
                version=message["version"],
                digest=message["digest"],
                path=str(artifacts.local_directory(message["adapter"])),
            ),
            ids=tuple(unpack_ids(message["prompt"])),
            sampling=SamplingParams(
                max_new_tokens=message["max_new_tokens"],
                temperature=message["temperature"],
                stop_ids=self._stop_ids,
            ),
            seed=message["seeds"][place],
        )

    def _send_finished(self) -> None:
        """The sender thread: publishes whatever the engine completes, in order."""
        while True:
            for generation in self._outbox.get():
                if not self._canaries.take(generation):
                    self._try_to_finish(generation)
            self._outbox.task_done()

    def _try_to_finish(self, generation: Generation) -> None:
        """One sequence's fault must not end the thread."""
        try:
            try:
                self._finish(generation)
            finally:
                close_old_connections()  # a dead one, too: the next sequence needs another
        except Exception:
            log.exception("%s not sent on", generation.id)
            joins.give_up(*_attempt(generation.id))

    def _finish(self, generation: Generation) -> None:
        key, index = _attempt(generation.id), _index(generation.id)
        with self._lock:
            held = self._held.get(key)
            if held is None:
                return
            held.unfinished.discard(index)
            if not held.unfinished or generation.error:
                del self._held[key]
        if generation.error:
            self._cancel(key, held)
            groups.return_group(*key, generation.error)
        elif generation.finish_reason != "cancelled":
            _send_on(held.message, index, generation)

    def _cancel(self, key: tuple[str, int], held: _Held) -> None:
        self.engine.cancel([_id(key, index) for index in held.unfinished])

    def _drop_stale(self) -> None:
        """Stop generating for attempts that nobody wants any more."""
        while not self._leaving.wait(STALE_CHECK_S):
            with self._lock:
                keys = list(self._held)
            try:
                live = joins.are_live(keys)
            except RedisError:
                continue  # asked again in a moment
            for key in (key for key, is_live in zip(keys, live, strict=True) if not is_live):
                with self._lock:
                    held = self._held.pop(key, None)
                if held:
                    self._cancel(key, held)

    def stop_taking(self) -> None:
        """Let go of whatever waits for the engine. Only sets events."""
        self._leaving.set()
        self.engine.close()

    def hand_back(self) -> None:
        """Put what the engine held back into the queue, as it came."""
        self.engine.join()
        self._outbox.join()
        with self._lock:
            keys = list(self._held)
        for key in keys:
            self._give_back(key)

    def _give_back(self, key: tuple[str, int]) -> None:
        with self._lock:
            held = self._held.pop(key, None)
        if held is None:
            return
        indexes = sorted(held.unfinished)
        message = held.message
        seeds = [message["seeds"][message["indexes"].index(index)] for index in indexes]
        name = f"rollout.{message['base_model']}"
        if joins.move(*key, indexes, f"queue:{name}"):
            rest = {**message, "indexes": indexes, "seeds": seeds}
            dispatch.send("rollout.generate", name, rest, retry=True)


def _id(key: tuple[str, int], index: int) -> str:
    """What the engine calls a trajectory of an attempt."""
    return f"{key[0]}:{key[1]}:{index}"


def _attempt(request_id: str) -> tuple[str, int]:
    group, attempt, _ = request_id.split(":")
    return group, int(attempt)


def _index(request_id: str) -> int:
    return int(request_id.rpartition(":")[2])


def _send_on(message: dict[str, Any], index: int, generation: Generation) -> None:
    """One generated trajectory to the environment."""
    trajectory = _trajectory(message, index, generation)
    key = trajectory.key
    if joins.move(key.group, key.attempt, [index], "queue:environment"):
        dispatch.send(
            "environment.interact",
            "environment",
            {
                "trajectory": pack_trajectory(trajectory),
                "row": message["row"],
                "base_model": message["base_model"],
            },
            retry=True,
        )


def _trajectory(message: dict[str, Any], index: int, generation: Generation) -> Trajectory:
    length = len(message["prompt"]) // 4
    return Trajectory(
        key=TrajectoryKey(
            message["task"], message["step"], message["group"], message["attempt"], index
        ),
        version=message["version"],
        digest=message["digest"],
        ids=message["prompt"] + pack_ids(list(generation.ids)),
        prompt_length=length,
        logprobs=pack_floats(list(generation.logprobs)),
        mask=b"\x01" * len(generation.ids),
        turns=(
            Turn(
                start=length,
                end=length + len(generation.ids),
                digest=generation.digest,
                finish_reason=generation.finish_reason,
                started_at=generation.started_at,
                finished_at=generation.finished_at,
                worker=hosting.name(),
            ),
        ),
        stop_reason=generation.finish_reason,
    )


_host: RolloutHost | None = None


def host() -> RolloutHost:
    """This process' engine. Raises AssertionError in a process of another kind."""
    assert _host, "this process is no rollout worker"
    return _host


def load() -> tuple[int, Callable[[], dict[str, Any]]]:
    """Load the base model into an engine: its slots, and a function that reads its figures."""
    global _host
    import torch

    from engine.models.chat import ChatTokenizer
    from engine.models.load import load_base_model
    from engine.rollout.service import EngineThread
    from engine.rollout.torch_engine import TorchEngine

    if settings.TORCH_THREADS:
        torch.set_num_threads(settings.TORCH_THREADS)
    (slug,) = settings.WORKER_BASE_MODELS
    row = BaseModel.objects.get(slug=slug)
    base = load_base_model(row.path, row.dtype, settings.DEVICE)
    engine = TorchEngine(base, num_slots=settings.ROLLOUT_SLOTS, max_length=row.max_model_length)
    stop_ids = ChatTokenizer(row.path).eos_ids
    _host = RolloutHost(lambda on_done: EngineThread(engine, on_done), stop_ids)
    thread = _host.engine
    return settings.ROLLOUT_SLOTS, lambda: asdict(thread.stats())


def tend(incarnation: str) -> None:
    """Leave if a thread has ended: the next process does what this one no longer can."""
    if not host().is_whole:
        log.error("a thread of %s has ended; leaving", incarnation)
        os.kill(os.getpid(), signal.SIGTERM)


def stop_taking() -> None:
    if _host:
        _host.stop_taking()


def hand_back() -> None:
    if _host:
        _host.hand_back()
