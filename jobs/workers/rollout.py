"""The rollout stage: hands groups to the engine, sends what it generates on to the environment.

`generate` only hands over, and blocks while the engine is full: that is the back-pressure, the rest
waits in the queue. The engine's completions go to an outbox; one sender thread publishes them.
Nothing here waits for a sequence. At SIGTERM what the engine still holds goes back to the queue,
and so do the later turns that wait for this worker.
"""

from __future__ import annotations

import logging
import os
import queue
import signal
import threading
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from typing import Any

from django.conf import settings
from django.db import close_old_connections
from redis.exceptions import RedisError

from engine.environments.episode import tokens_left, with_turn
from engine.errors import ArtifactError
from engine.prompt_order import turn_seed
from engine.rollout.protocol import RolloutEngine
from engine.types import (
    AdapterRef,
    Generation,
    GenerationRequest,
    SamplingParams,
    Trajectory,
    TrajectoryKey,
    unpack_ids,
)
from jobs import artifacts
from jobs.models import BaseModel
from jobs.services import dispatch, groups, joins
from jobs.services.payloads import unpack_trajectory
from jobs.workers import hosting
from jobs.workers.canaries import Canaries
from jobs.workers.sampling import Samples
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


@app.task(name="rollout.resume")
def resume(message: dict[str, Any]) -> None:
    """Take a later turn of a trajectory into the engine."""
    try:
        host().take_turn(message)
    except Exception:
        key = message["trajectory"]["key"]
        joins.give_up(key["group"], key["attempt"])
        raise


@app.task(name="rollout.sample")
def sample(message: dict[str, Any]) -> None:
    """Take sequences of a check into the engine."""
    host().take_samples(message)


@dataclass(frozen=True)
class _Held:
    """A trajectory whose next turn the engine generates, and the message that brought it."""

    trajectory: Trajectory
    seed: int  # of its first turn
    message: dict[str, Any]

    @property
    def id(self) -> str:
        """What the engine calls the trajectory, and the session that its turns are."""
        return self.trajectory.key.name

    @property
    def attempt(self) -> tuple[str, int]:
        return self.trajectory.key.group, self.trajectory.key.attempt

    @property
    def has_turns(self) -> bool:
        found: bool = self.message["has_turns"]
        return found

    def may_go_on(self, generation: Generation) -> bool:
        """Whether the environment may ask for another turn after this one."""
        num_turns = len(self.trajectory.turns) + 1
        is_cut = generation.finish_reason != "stop"
        return self.has_turns and not is_cut and num_turns < self.message["max_turns"]


class RolloutHost:
    """The engine of this process, and what it holds for whom."""

    def __init__(self, engine_thread: Callable[..., Any], stop_ids: tuple[int, ...]) -> None:
        """engine_thread: called with the completion callback, returns a started EngineThread."""
        self._stop_ids = stop_ids
        self._held: dict[str, _Held] = {}  # by id
        self._away: set[str] = set()  # ids whose KV is kept while the environment has them
        self._canaries = Canaries()
        self._samples = Samples(stop_ids)
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
        """Hand a group's trajectories to the engine; waits while it is full."""
        key = (message["group"], message["attempt"])
        if not joins.move(*key, message["indexes"], f"worker:{hosting.incarnation()}"):
            groups.count_late(message["group"])
            return
        seeds = zip(message["indexes"], message["seeds"], strict=True)
        self._hold([_Held(_begun(message, index), seed, message) for index, seed in seeds])

    def take_turn(self, message: dict[str, Any]) -> None:
        """Hand a trajectory to the engine for another turn; waits while it is full."""
        trajectory = unpack_trajectory(message["trajectory"])
        key, place = trajectory.key, f"worker:{hosting.incarnation()}"
        if not joins.move(key.group, key.attempt, [key.index], place):
            groups.count_late(key.group)
            return
        self._hold([_Held(trajectory, message["seed"], message)])

    def take_samples(self, message: dict[str, Any]) -> None:
        """Hand a check's sequences to the engine; waits while it is full."""
        requests = self._samples.requests(message)
        try:
            is_taken = not requests or self.engine.submit(requests)
        except Exception:
            self._samples.let_go(requests)
            raise
        if not is_taken:
            self._samples.give_back()

    def _hold(self, new: list[_Held]) -> None:
        """new: all of one attempt."""
        try:
            requests = [self._request(held) for held in new]
        except ArtifactError as error:
            groups.return_group(*new[0].attempt, str(error))
            return
        by_id = {held.id: held for held in new}
        with self._lock:
            if by_id.keys() & self._held.keys():  # the same message twice
                return
            self._held |= by_id
            self._away -= by_id.keys()
        try:
            canaries = self._canaries.requests(requests[0].adapter)
            is_taken = self.engine.submit([*canaries, *requests])
        except Exception:
            self._let_go(by_id)
            raise
        if not is_taken:
            self._give_back(by_id)

    def _let_go(self, ids: Iterable[str]) -> list[_Held]:
        """Those of the ids that were still held."""
        with self._lock:
            found = [self._held.pop(id, None) for id in ids]
        return [held for held in found if held]

    def _request(self, held: _Held) -> GenerationRequest:
        trajectory, message = held.trajectory, held.message
        sampling = SamplingParams(
            max_new_tokens=tokens_left(trajectory, message["max_new_tokens"]),
            temperature=message["temperature"],
            stop_ids=self._stop_ids,
        )
        sampling.require_on_policy()
        return GenerationRequest(
            id=held.id,
            adapter=AdapterRef(
                task=trajectory.key.task,
                version=trajectory.version,
                digest=trajectory.digest,
                path=str(artifacts.local_directory(message["adapter"])),
            ),
            ids=tuple(unpack_ids(trajectory.ids)),
            sampling=sampling,
            seed=turn_seed(held.seed, len(trajectory.turns)),
            session=held.id if held.has_turns else "",
        )

    def _send_finished(self) -> None:
        """The sender thread: publishes whatever the engine completes, in order."""
        while True:
            for generation in self._outbox.get():
                if not (self._canaries.take(generation) or self._samples.take(generation)):
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
        for held in self._let_go([generation.id]):
            if generation.error:
                self._cancel([held.attempt])
                groups.return_group(*held.attempt, generation.error)
            elif generation.finish_reason != "cancelled":
                self._keep_or_forget(held, generation)
                _send_on(held, generation)

    def _keep_or_forget(self, held: _Held, generation: Generation) -> None:
        if held.may_go_on(generation):
            with self._lock:
                self._away.add(held.id)
        elif held.trajectory.turns:
            self.engine.forget([held.id])

    def _cancel(self, attempts: Iterable[tuple[str, int]]) -> None:
        """Drop all that is held of these attempts, and the KV kept for them."""
        unwanted = set(attempts)
        with self._lock:
            held = [id for id in self._held if _attempt(id) in unwanted]
            kept = [id for id in self._away if _attempt(id) in unwanted]
            self._away -= set(kept)
        self.engine.cancel([one.id for one in self._let_go(held)])
        self.engine.forget([*held, *kept])

    def _drop_stale(self) -> None:
        """Stop generating for attempts that nobody wants any more, and forget what has ended."""
        while not self._leaving.wait(STALE_CHECK_S):
            try:
                self._look_for_stale()
            except RedisError:
                continue  # asked again in a moment

    def _look_for_stale(self) -> None:
        with self._lock:
            attempts = sorted({_attempt(id) for id in self._held})
            away = sorted(self._away)
        live = joins.are_live(attempts)
        if dead := [key for key, is_live in zip(attempts, live, strict=True) if not is_live]:
            self._cancel(dead)
        going_on = joins.are_under_way([(*_attempt(id), _index(id)) for id in away])
        ended = {id for id, goes_on in zip(away, going_on, strict=True) if not goes_on}
        with self._lock:
            ended &= self._away
            self._away -= ended
        if ended:
            self.engine.forget(sorted(ended))

    def stop_taking(self) -> None:
        """Let go of whatever waits for the engine. Only sets events."""
        self._leaving.set()
        self.engine.close()

    def hand_back(self) -> None:
        """Put what the engine held, and what waits for this worker, into the shared queue."""
        self.engine.join()
        self._outbox.join()
        with self._lock:
            ids = list(self._held)
        self._give_back(ids)
        self._samples.give_back()
        for slug in settings.WORKER_BASE_MODELS:
            for name, message in dispatch.take_all(f"rollout.{slug}.{hosting.name()}"):
                assert name == "rollout.resume", f"{name} in a queue of later turns"
                _pass_on(unpack_trajectory(message["trajectory"]), message)

    def _give_back(self, ids: Iterable[str]) -> None:
        """As it came: the first turns of a group together."""
        by_attempt: dict[tuple[str, int], list[_Held]] = {}
        for held in self._let_go(ids):
            if held.trajectory.turns:
                _pass_on(held.trajectory, held.message)
            else:
                by_attempt.setdefault(held.attempt, []).append(held)
        for attempt, rest in by_attempt.items():
            message = {
                **rest[0].message,
                "indexes": [held.trajectory.key.index for held in rest],
                "seeds": [held.seed for held in rest],
            }
            name = f"rollout.{message['base_model']}"
            if joins.move(*attempt, message["indexes"], f"queue:{name}"):
                dispatch.send("rollout.generate", name, message, retry=True)


def _pass_on(trajectory: Trajectory, message: dict[str, Any]) -> None:
    """A later turn, to any worker of the base model."""
    key, name = trajectory.key, f"rollout.{message['base_model']}"
    if joins.move(key.group, key.attempt, [key.index], f"queue:{name}"):
        dispatch.send("rollout.resume", name, message, retry=True)


def _attempt(id: str) -> tuple[str, int]:
    group, attempt, _ = id.split(":")
    return group, int(attempt)


def _index(id: str) -> int:
    return int(id.rpartition(":")[2])


def _begun(message: dict[str, Any], index: int) -> Trajectory:
    """A trajectory that is its prompt."""
    return Trajectory(
        key=TrajectoryKey(
            message["task"], message["step"], message["group"], message["attempt"], index
        ),
        version=message["version"],
        digest=message["digest"],
        ids=message["prompt"],
        prompt_length=len(message["prompt"]) // 4,
    )


def _send_on(held: _Held, generation: Generation) -> None:
    """A trajectory with its new turn to the environment."""
    trajectory = with_turn(held.trajectory, generation, hosting.name())
    key = trajectory.key
    if joins.move(key.group, key.attempt, [key.index], "queue:environment"):
        message = dispatch.turn_message(trajectory, held.seed, held.message)
        dispatch.send("environment.interact", "environment", message, retry=True)


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
    from engine.rollout.service import EngineThread

    if settings.TORCH_THREADS:
        torch.set_num_threads(settings.TORCH_THREADS)
    (slug,) = settings.WORKER_BASE_MODELS
    row = BaseModel.objects.get(slug=slug)
    make = _emulated_engine if settings.EMULATION else _engine_of(row)
    stop_ids = ChatTokenizer(row.path).eos_ids
    _host = RolloutHost(lambda on_done: EngineThread(make, on_done), stop_ids)
    thread = _host.engine
    return settings.ROLLOUT_SLOTS, lambda: asdict(thread.stats())


def _emulated_engine() -> RolloutEngine:
    from engine.emulation.engine import EmulatedEngine
    from engine.emulation.script import read_script

    log.warning("nothing is generated here: the emulation of %s", settings.EMULATION)
    return EmulatedEngine(read_script(settings.EMULATION), settings.ROLLOUT_SLOTS)


def _engine_of(row: BaseModel) -> Callable[[], RolloutEngine]:
    from engine.rollout.engines import EngineSpec, VllmSettings, make_engine

    spec = EngineSpec(
        path=row.path,
        dtype=row.dtype,
        device=settings.DEVICE,
        num_slots=settings.ROLLOUT_SLOTS,
        max_length=row.max_model_length,
        torch_options={
            "kv_bytes": settings.ROLLOUT_KV_MIB << 20 or None,
            "adapter_bytes": settings.ROLLOUT_ADAPTER_MIB << 20,
        },
        vllm=VllmSettings(
            urls=tuple(settings.VLLM_URLS),
            python=settings.VLLM_PYTHON,
            arguments=settings.VLLM_ARGS,
            directory=settings.VAR_DIR / "vllm" / hosting.name(),
        ),
    )
    return lambda: make_engine(settings.ROLLOUT_ENGINE, spec)


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
