"""What a worker process is: its kind and name, its incarnation, what it loads and when it leaves.

Celery starts the same program for every kind; MARLAAS_WORKER_KIND says which this is. Loading
happens before the first message is taken (`worker_init`), and the heartbeat begins once it is done.
"""

from __future__ import annotations

import logging
import os
import socket
from typing import Any

from celery import signals
from django.conf import settings
from django.db import connections

from jobs.services.heartbeats import Heartbeat

log = logging.getLogger(__name__)

KIND = os.environ.get("MARLAAS_WORKER_KIND", "")
_heartbeat: Heartbeat | None = None


def incarnation() -> str:
    """Of this process. Raises AssertionError in a process that is no worker."""
    assert _heartbeat, "MARLAAS_WORKER_KIND is not set: this process is no worker"
    return _heartbeat.incarnation


def name() -> str:
    """Stable over restarts: by configuration, else the kind and the host."""
    return settings.WORKER_NAME or f"{KIND}@{socket.gethostname()}"


@signals.worker_init.connect
def _load(**_: Any) -> None:
    """Load what the kind needs, then say that this incarnation lives."""
    global _heartbeat
    if not KIND:
        return
    try:
        _heartbeat = _live()
    except Exception as error:
        # Celery would log it and go on, with a worker that takes messages and can do nothing.
        log.exception("%s cannot work", name())
        raise SystemExit(1) from error
    _heartbeat.start()
    # Celery's Django fixup closes the bare file descriptor of a connection that is open when a solo
    # pool starts: PostgreSQL's pool would go on with whatever gets that number next, and hang.
    connections.close_all()
    log.info("%s lives as %s", name(), _heartbeat.incarnation)


def _live() -> Heartbeat:
    """Load the models, then register. Raises: whatever stands against it."""
    from jobs.workers import environment, rollout, training

    if KIND == "rollout":
        slots, stats = rollout.load()
        return Heartbeat(KIND, name(), settings.WORKER_BASE_MODELS, slots, stats, rollout.tend)
    if KIND == "training":
        stats = training.load()
        return Heartbeat(KIND, name(), training.served(), 0, stats, training.tend)
    if KIND == "environment":
        stats = environment.load()
        return Heartbeat(KIND, name(), settings.WORKER_BASE_MODELS, 0, stats, environment.tend)
    return Heartbeat(KIND, name(), settings.WORKER_BASE_MODELS)


def _host() -> Any:
    """What of this process holds trajectories, if anything does."""
    from jobs.workers import environment, rollout

    return {"rollout": rollout, "environment": environment}.get(KIND)


@signals.worker_shutting_down.connect
def _stop_taking(**_: Any) -> None:
    """Runs in a signal handler: only sets events."""
    if host := _host():
        host.stop_taking()


@signals.worker_shutdown.connect
def _leave(**_: Any) -> None:
    if host := _host():
        host.hand_back()
    if _heartbeat:
        _heartbeat.stop()
