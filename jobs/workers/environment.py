"""The environment stage: answers a trajectory's last turn, and sends it on.

`interact` only hands over: hundreds of episodes wait at once in one event loop, for tools, graders
and judges, and none of them holds a thread. An episode that goes on returns to the rollout as a
later turn. One that is over joins its group; the last of a group ends it. What waits for an attempt
that nobody wants any more is cancelled; at SIGTERM the rest goes back to the queue.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import threading
import time
from collections.abc import Callable, Coroutine
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from django.conf import settings
from django.db import close_old_connections
from redis.exceptions import RedisError

from engine.environments import Context, Environment
from engine.environments.activity import Activity, watch
from engine.rewards import Services
from engine.types import Trajectory, TrajectoryKey
from jobs.services import dispatch, failures, groups, joins
from jobs.services.payloads import unpack_trajectory
from jobs.workers import hosting
from jobs.workers.episodes import answer
from jobs.workers.services import (
    TENANT_TOOL_CALLS,
    close_services,
    make_services,
    read_settings,
)
from marlaas_site.celery import app

STALE_CHECK_S = LEAVING_CHECK_S = 1.0
TOLD_AFTER_S = 2.0  # an episode that waits so long for one thing says for what
SEND_TIMEOUT_S = 10.0
SENDERS = 8  # threads that talk to Redis and the database for the loop
SETTINGS_S = 60.0  # a task's row is read again after so long
MAX_SETTINGS = 1_000  # tasks
QUEUE = "environment"

log = logging.getLogger(__name__)
T = TypeVar("T")


@app.task(name="environment.interact")
def interact(message: dict[str, Any]) -> None:
    """Take a trajectory whose last turn wants an answer; waits while the worker is full."""
    trajectory = unpack_trajectory(message["trajectory"])
    try:
        host().take(trajectory, message)
    except Exception:  # it must not seem to be here for ever
        joins.give_up(trajectory.key.group, trajectory.key.attempt)
        raise


@dataclass
class _Held:
    """An episode that waits here, and the message that brought it."""

    trajectory: Trajectory
    message: dict[str, Any]
    future: Future[None] | None = None  # None: not in the loop yet
    is_answered: bool = False  # it is being sent on, and must not be sent twice
    activity: Activity = field(default_factory=Activity)
    told: float = 0.0  # of which activity, by its beginning, Redis knows

    @property
    def key(self) -> TrajectoryKey:
        return self.trajectory.key

    @property
    def id(self) -> tuple[str, int, int, int]:
        """The next turn of a trajectory may come before the last one has quite left."""
        key = self.key
        return key.group, key.attempt, key.index, len(self.trajectory.turns)

    def cancel(self) -> bool:
        """Whether it will not be sent on from here."""
        return not self.is_answered and self.future is not None and self.future.cancel()


class EnvironmentHost:
    """The event loop of this process, and the episodes in it."""

    def __init__(self, max_episodes: int) -> None:
        """max_episodes: that wait here at once; the rest stays in the queue."""
        self._room = threading.BoundedSemaphore(max_episodes)
        self._held: dict[tuple[str, int, int, int], _Held] = {}  # by id
        self._lock = threading.Lock()
        self._leaving = threading.Event()
        # By task: until when (monotonic), and what its episodes need
        self._settings: dict[str, tuple[float, tuple[Environment, Context]]] = {}
        self._tool_slots: dict[str, asyncio.Semaphore] = {}  # by tenant
        self._senders = ThreadPoolExecutor(SENDERS, "sender")
        self._loop = asyncio.new_event_loop()
        self._threads = [
            threading.Thread(target=work, name=work.__name__, daemon=True)
            for work in (self._run_loop, self._drop_stale)
        ]
        for thread in self._threads:
            thread.start()
        self.services = self.run(make_services())

    @property
    def is_whole(self) -> bool:
        """Whether all its threads live, or it is leaving."""
        return self._leaving.is_set() or all(thread.is_alive() for thread in self._threads)

    def stats(self) -> dict[str, Any]:
        """Figures for the heartbeat."""
        return {"episodes": len(self._held)}

    def take(self, trajectory: Trajectory, message: dict[str, Any]) -> None:
        """Hand an episode to the loop; waits while it is full, and hands it back when leaving."""
        held = _Held(trajectory, message)
        while not self._room.acquire(timeout=LEAVING_CHECK_S) and not self._leaving.is_set():
            pass
        if self._leaving.is_set():
            _hand_back(held)
            return
        with self._lock:
            is_new = self._held.setdefault(held.id, held) is held
        if not is_new:  # the same message twice
            self._room.release()
            return
        is_live = False
        try:
            is_live = self._begin(held)
        finally:
            if not is_live:
                self._let_go(held)
        if not is_live:
            groups.count_late(held.key.group)

    def _begin(self, held: _Held) -> bool:
        """Whether anybody still wants it."""
        key, place = held.key, f"worker:{hosting.incarnation()}"
        if not joins.move(key.group, key.attempt, [key.index], place):
            return False
        held.future = self.begin(self._episode(held))
        # Not at the coroutine's end: one that is cancelled before its first step never gets there.
        held.future.add_done_callback(lambda _: self._let_go(held))
        return True

    def _let_go(self, held: _Held) -> None:
        with self._lock:
            del self._held[held.id]
        self._room.release()

    async def _episode(self, held: _Held) -> None:
        message = held.message
        watch(held.activity)
        try:
            settings_ = await self._settings_of(held.key.task, message["base_model"])
            answered, is_over = await answer(held.trajectory, message, *settings_)
            held.is_answered = True
            await self.apart(_send_on, answered, is_over, message)
        except Exception:
            log.exception("%s could not be sent on", held.key)
            await self.apart(joins.give_up, held.key.group, held.key.attempt)

    async def apart(self, work: Callable[..., T], *arguments: Any) -> T:
        """The result of what waits for Redis or the database, in a thread that may."""

        def run() -> T:
            try:
                return work(*arguments)
            finally:
                close_old_connections()

        return await self._loop.run_in_executor(self._senders, run)

    async def _settings_of(self, task: str, base_model: str) -> tuple[Environment, Context]:
        """What the episodes of a task need, as its row said a minute ago at most."""
        until, found = self._settings.get(task, (0.0, None))
        if found is None or time.monotonic() > until:
            found = await self.apart(read_settings, task, base_model, self.services_of)
            if len(self._settings) >= MAX_SETTINGS:
                self._settings.clear()
            self._settings[task] = (time.monotonic() + SETTINGS_S, found)
        return found

    def forget_settings(self) -> None:
        """Read every task's row again when its next episode comes."""
        self._settings.clear()

    def services_of(self, tenant: str) -> Services:
        """What a tenant's work may use, without its secrets."""
        slots = self._tool_slots.setdefault(tenant, asyncio.Semaphore(TENANT_TOOL_CALLS))
        return replace(self.services, tenant=tenant, tool_slots=slots)

    def _run_loop(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()
        self._loop.close()

    def begin(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Start a coroutine in this loop, from another thread."""
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """What a coroutine of this loop returns, for other threads."""
        return self.begin(work).result()

    def wait(self, timeout_s: float) -> None:
        """Until no episode is here. Raises: TimeoutError."""
        end = time.monotonic() + timeout_s
        while self._held:
            if time.monotonic() > end:
                raise TimeoutError(f"{len(self._held)} episodes still wait")
            time.sleep(0.005)

    def _drop_stale(self) -> None:
        """Cancel what waits for attempts that nobody wants any more."""
        while not self._leaving.wait(STALE_CHECK_S):
            try:
                self._look_for_stale()
                self._tell_long_waits()
            except RedisError:
                continue  # asked again in a moment

    def _look_for_stale(self) -> None:
        with self._lock:
            held = list(self._held.values())
        attempts = sorted({(one.key.group, one.key.attempt) for one in held})
        live = dict(zip(attempts, joins.are_live(attempts), strict=True))
        for one in held:
            if not live[one.key.group, one.key.attempt]:
                one.cancel()

    def _tell_long_waits(self) -> None:
        """Note what episodes wait for, once for each long wait."""
        with self._lock:
            held = list(self._held.values())
        before = time.time() - TOLD_AFTER_S
        waits = []
        for one in held:
            what, since = one.activity.what, one.activity.since
            if what and since <= before and since != one.told:
                one.told = since
                waits.append(joins.Wait(one.key.group, one.key.attempt, one.key.index, what, since))
        joins.note_waits(waits)

    def stop_taking(self) -> None:
        """Only sets an event."""
        self._leaving.set()

    def hand_back(self) -> None:
        """Put what waits here back into the queue, for a worker that lives. The last call."""
        if self._loop.is_closed():
            return
        with self._lock:
            held = list(self._held.values())
        for one in held:
            if one.cancel():
                _hand_back(one)
        with contextlib.suppress(TimeoutError):
            self.wait(SEND_TIMEOUT_S)  # for those that are being sent on
        with contextlib.suppress(Exception):  # it ends with this process in any case
            self.begin(close_services(self.services)).result(SEND_TIMEOUT_S)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._threads[0].join(SEND_TIMEOUT_S)


def _hand_back(held: _Held) -> None:
    key = held.key
    if joins.move(key.group, key.attempt, [key.index], f"queue:{QUEUE}"):
        dispatch.send("environment.interact", QUEUE, held.message, retry=True)


def _send_on(trajectory: Trajectory, is_over: bool, message: dict[str, Any]) -> None:
    key = trajectory.key
    if not is_over:
        if not dispatch.send_turn(trajectory, message):
            groups.count_late(key.group)
        return
    outcome = joins.join(trajectory)
    if outcome == "late":
        groups.count_late(key.group)
    elif outcome == "full":
        _finish(key.group, key.attempt)


def _finish(group: str, attempt: int) -> None:
    try:
        trajectories = joins.collect(group, attempt)
        groups.finish_group(group, attempt, trajectories, hosting.name())
    except Exception as error:  # whatever it is, the group must not stay dispatched for ever
        log.exception("group %s could not be finished", group)
        groups.return_group(group, attempt, failures.told(error))


_host: EnvironmentHost | None = None


def host() -> EnvironmentHost:
    """This process' loop. Raises AssertionError in a process of another kind."""
    assert _host, "this process is no environment worker"
    return _host


def load() -> Callable[[], dict[str, Any]]:
    """Start the loop; returns a function that reads its figures."""
    global _host
    _host = EnvironmentHost(settings.ENVIRONMENT_EPISODES)
    return _host.stats


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
