"""An environment worker for errands, in the tests' own process: its loop, sandbox and queue."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from types import SimpleNamespace

import pytest
from django.utils import timezone

from jobs.models import Worker
from jobs.services import dispatch
from jobs.workers import environment, hosting
from jobs.workers import errands as work


@contextlib.contextmanager
def errand_worker() -> Iterator[None]:
    """Lives, and takes errands out of its queue, until the block ends."""
    living_row()
    patch = pytest.MonkeyPatch()
    patch.setattr(hosting, "_heartbeat", SimpleNamespace(incarnation="e"))
    host = environment.EnvironmentHost(2)
    patch.setattr(environment, "_host", host)
    is_over = threading.Event()

    def consume() -> None:
        while not is_over.wait(0.02):
            for name, message in dispatch.take_all("environment"):
                assert name == "environment.errand"
                work.errand(message)

    thread = threading.Thread(target=consume, daemon=True)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join(10)
        host.stop_taking()
        host.hand_back()
        patch.undo()


def living_row() -> None:
    """The row of an environment worker that has just beaten."""
    Worker.objects.create(
        name="e", kind="environment", host="here", pid=1, last_beat_at=timezone.now()
    )
