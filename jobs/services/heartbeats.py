"""Worker incarnations: who lives, what it serves, what it holds.

A worker beats every 2 s from a thread of its own; the planner takes 10 s of silence, or a newer
incarnation of the same name, for death.
"""

from __future__ import annotations

import logging
import os
import socket
import threading
from collections.abc import Callable
from typing import Any

from django.db import DatabaseError, close_old_connections, transaction
from django.utils import timezone

from jobs.models import Worker
from jobs.services.planner_bell import ring_planner

BEAT_S = 2.0
log = logging.getLogger(__name__)


class Heartbeat:
    """The life of this process as a worker."""

    def __init__(
        self,
        kind: str,
        name: str,
        base_models: list[str],
        slots: int = 0,
        stats: Callable[[], dict[str, Any]] = dict,
    ) -> None:
        """Registers the incarnation; earlier ones of the same name are over from now on."""
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
        self._stats = stats
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="heartbeat", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def _run(self) -> None:
        while not self._stop.wait(BEAT_S):
            try:
                self.beat()
            except DatabaseError as error:
                log.warning("heartbeat missed: %s", error)
            finally:
                close_old_connections()

    def beat(self) -> None:
        """Say that this incarnation lives, with its figures."""
        Worker.objects.filter(pk=self.worker.pk).update(
            last_beat_at=timezone.now(), stats=self._stats()
        )

    def stop(self) -> None:
        """Leave in good order."""
        self._stop.set()
        Worker.objects.filter(pk=self.worker.pk).update(stopped_at=timezone.now())
        ring_planner()
