"""The parent of a stack: one keeper a directory, holding its lock.

It starts supervisord, or adopts the one that a killed keeper left, starts it again when it dies,
and ends everything in order. It knows nothing of what the programs do.
"""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence

from . import processes, supervision
from .layout import Layout
from .programs import Program

STOP_TIMEOUT_S = 25.0


class AlreadyRunningError(Exception):
    """Another keeper holds the directory."""


class Keeper:
    """Keeps the programs of one directory alive. Use it from one thread."""

    def __init__(self, layout: Layout) -> None:
        """Takes the directory's lock; the kernel frees it whatever way this process ends.

        Raises: AlreadyRunningError if another keeper has it.
        """
        self.layout = layout
        layout.make_directories()
        self._lock = open(layout.lock, "a")  # noqa: SIM115 (held as long as the process lives)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self._lock.close()
            raise AlreadyRunningError from None
        processes.record(layout.run / "keeper.json", os.getpid())
        self._child: subprocess.Popen | None = None
        self._programs: Sequence[Program] = ()
        self._env: Mapping[str, str] = {}
        self._failures = 0
        self._started_at = 0.0

    @property
    def supervisord(self) -> processes.Process | None:
        """The living supervisord of this directory, ours or adopted."""
        if self._child is not None:
            self._child.poll()  # reaps it
        return processes.living(supervision.record_path(self.layout))

    def start(self, programs: Sequence[Program], env: Mapping[str, str]) -> None:
        """Start everything. programs, env: kept, to start them again."""
        self._programs, self._env = programs, env
        supervision.clear(self.layout)
        self._child = supervision.start(self.layout, programs, env)
        self._started_at = time.monotonic()

    def adopt(self, programs: Sequence[Program], env: Mapping[str, str]) -> None:
        """Take over the supervisord that runs; programs, env: to start them again."""
        self._programs, self._env = programs, env
        self._started_at = time.monotonic()

    def watch(self) -> bool:
        """Start supervisord again if it died; True if it had to. Call it about every 0.5 s."""
        if self.supervisord is not None:
            return False
        lived_s = time.monotonic() - self._started_at
        self._failures = self._failures + 1 if lived_s < 10 else 0
        time.sleep(min(self._failures, 8))
        self.start(self._programs, self._env)
        return True

    def stop(self) -> None:
        """End every process: supervisord in order, then by force what is left."""
        end_programs(self.layout)
        if self._child is not None:
            self._child.poll()

    def kill(self) -> None:
        """End every process at once."""
        daemon = self.supervisord
        processes.kill_all([daemon] if daemon else [])
        supervision.clear(self.layout)

    def release(self) -> None:
        """Give the directory back."""
        (self.layout.run / "keeper.json").unlink(missing_ok=True)
        self._lock.close()


def end_programs(layout: Layout) -> bool:
    """End supervisord and its programs; False if nothing ran."""
    daemon = processes.living(supervision.record_path(layout))
    ran = daemon is not None or bool(supervision.program_processes(layout))
    if daemon is not None:
        daemon.send(signal.SIGTERM)
        processes.kill_all(processes.wait_until_gone([daemon], STOP_TIMEOUT_S))
    supervision.clear(layout)
    return ran


def end_stack(layout: Layout) -> bool:
    """End a stack from outside, keeper first, alive or not; False if nothing ran."""
    keeper = processes.living(layout.run / "keeper.json")
    if keeper is not None:
        keeper.send(signal.SIGTERM)
        processes.kill_all(processes.wait_until_gone([keeper], STOP_TIMEOUT_S + 10))
    return end_programs(layout) or keeper is not None
