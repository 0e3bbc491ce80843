"""Worker incarnations: who lives, what it serves, what it holds.

A worker beats every 2 s from a thread of its own; the planner takes 10 s of silence without a pulse
(`pulses.py`), or a newer incarnation of the same name, for death. One that was only stopped for a
while comes back to life.
"""

from __future__ import annotations

import logging
import os
import socket
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any
from uuid import UUID

from django.db import close_old_connections, transaction
from django.utils import timezone
from redis.exceptions import RedisError

from engine.manager.leases import BEAT_LIMIT_S
from jobs.models import Worker
from jobs.services import pulses, stored
from jobs.services.planner_bell import ring_planner
from jobs.services.pulses import Pulse

BEAT_S = 2.0
NAMES_KEPT_S = 1.0  # by each process, so that many turns a second cost one question
log = logging.getLogger(__name__)


def living_workers(*kinds: str) -> list[Worker]:
    """Workers, of these kinds if any are named, that beat or had a pulse lately, as the planner
    sees it. Redis is asked only of those that did not beat."""
    since = timezone.now() - timedelta(seconds=BEAT_LIMIT_S)
    here = Worker.objects.filter(stopped_at=None)
    workers = list(here.filter(kind__in=kinds) if kinds else here)
    silent = {worker.pk for worker in workers if worker.last_beat_at < since}
    silent -= _with_pulse(silent, since.timestamp())
    return [worker for worker in workers if worker.pk not in silent]


def _with_pulse(incarnations: set[UUID], since: float) -> set[UUID]:
    """Those that gave one since then (epoch s); none while Redis is away."""
    try:
        found = pulses.taken() if incarnations else {}
    except RedisError:
        found = {}
    return {one for one in incarnations if found.get(str(one), 0.0) >= since}


_names: tuple[float, frozenset[str]] = (0.0, frozenset())  # until when (monotonic), which


def living_names() -> frozenset[str]:
    """Names of the workers that beat lately, as of the last second."""
    global _names
    until, names = _names
    if time.monotonic() > until:
        names = frozenset(worker.name for worker in living_workers())
        _names = (time.monotonic() + NAMES_KEPT_S, names)
    return names


class Heartbeat:
    """The life of this process as a worker."""

    def __init__(
        self,
        kind: str,
        name: str,
        base_models: list[str],
        slots: int = 0,
        stats: Callable[[], dict[str, Any]] = dict,
        tend: Callable[[str], None] = lambda incarnation: None,
    ) -> None:
        """Registers the incarnation; earlier ones of the same name are over from now on.

        tend: called after each beat with the incarnation, to see that what it holds is in order.
        """
        now = timezone.now()
        with transaction.atomic():
            Worker.objects.filter(name=name, stopped_at=None).update(stopped_at=now)
            self.worker = Worker.objects.create(
                name=name,
                kind=kind,
                host=socket.gethostname(),
                pid=os.getpid(),
                base_models=base_models,
                slots=slots,
                last_beat_at=now,
            )
            transaction.on_commit(ring_planner)
        self.incarnation = str(self.worker.pk)
        self._stats, self._tend = stats, tend
        self._pulse = Pulse(self.incarnation)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="heartbeat", daemon=True)

    def start(self) -> None:
        self._pulse.start()
        self._thread.start()

    def _run(self) -> None:
        pause_s = 0.0  # the first at once: figures that the planner lacks bound nothing
        while not self._stop.wait(pause_s):
            pause_s = BEAT_S
            try:
                self._beat_and_tend()
            except Exception as error:  # without this thread the worker would be dead for ever
                log.warning("heartbeat missed: %r", error)

    def _beat_and_tend(self) -> None:
        """Whatever happens, the next beat has a connection of its own: this one may be dead."""
        try:
            self.beat()
            self._tend(self.incarnation)
        finally:
            close_old_connections()

    def beat(self) -> None:
        """Say that this incarnation lives, with its figures.

        SQLite lets one write at a time: what a beat waits for its turn is no silence of the worker,
        so the moment is that of the turn.
        """
        figures = stored.storable(self._stats())
        mine = Worker.objects.filter(pk=self.worker.pk, stopped_at=None)
        with transaction.atomic():
            if not mine.update(last_beat_at=timezone.now(), stats=figures):
                self._come_back()

    def _come_back(self) -> None:
        """This process was stopped for so long that its row was closed or thrown away."""
        successors = Worker.objects.filter(
            name=self.worker.name, started_at__gt=self.worker.started_at
        )
        if not successors.exists():
            log.warning("%s was taken for dead and lives on", self.worker)
            self.worker.last_beat_at, self.worker.stopped_at = timezone.now(), None
            self.worker.save()

    def stop(self) -> None:
        """Leave in good order."""
        self._stop.set()
        self._pulse.stop()
        if self._thread.is_alive():
            self._thread.join(timeout=2)
        Worker.objects.filter(pk=self.worker.pk).update(stopped_at=timezone.now())
        ring_planner()
