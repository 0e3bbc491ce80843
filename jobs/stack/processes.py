"""Which process is which: a record of a process is its pid and when it started.

A pid alone may belong to a stranger by tomorrow; with the start time it is one process for ever.
Nothing here (or anywhere in this project) looks for processes by name.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from .layout import write_whole


@dataclass(frozen=True)
class Process:
    """One life of one process."""

    pid: int
    started: str  # system's word for its start time

    @property
    def is_alive(self) -> bool:
        return bool(self.started) and start_time(self.pid) == self.started

    def send(self, number: int) -> None:
        """Send a signal, if it still lives."""
        if self.is_alive:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(self.pid, number)


def start_time(pid: int) -> str:
    """When a process started, "" if there is none or it is only waiting to be reaped."""
    stat = Path(f"/proc/{pid}/stat")
    if Path("/proc/self/stat").exists():
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            return ""
        return "" if fields[0] in "ZX" else fields[19]  # state; start time in clock ticks
    found = subprocess.run(
        ["ps", "-o", "state=,lstart=", "-p", str(pid)], capture_output=True, text=True
    )
    words = found.stdout.split(maxsplit=1)
    return "" if len(words) < 2 or words[0].startswith("Z") else words[1].strip()


def record(path: Path, pid: int, **more: object) -> Process:
    """Write down a process; `more` is kept beside it."""
    process = Process(pid, start_time(pid))
    write_whole(path, json.dumps({"pid": pid, "started": process.started, **more}))
    return process


def read(path: Path) -> dict[str, object]:
    """A record as written; {} if there is none."""
    try:
        return json.loads(path.read_text())
    except (OSError, ValueError):
        return {}


def living(path: Path) -> Process | None:
    """The recorded process if it is alive."""
    found = read(path)
    if not found:
        return None
    process = Process(int(str(found["pid"])), str(found["started"]))
    return process if process.is_alive else None


def wait_until_gone(processes: Iterable[Process], timeout_s: float) -> list[Process]:
    """Wait for all to end; returns those that have not."""
    deadline = time.monotonic() + timeout_s
    left = [process for process in processes if process.is_alive]
    while left and time.monotonic() < deadline:
        time.sleep(0.05)
        left = [process for process in left if process.is_alive]
    return left


def kill_all(processes: Iterable[Process], timeout_s: float = 5.0) -> list[Process]:
    """End processes at once; returns those that live on all the same."""
    doomed = list(processes)
    for process in doomed:
        process.send(signal.SIGKILL)
    return wait_until_gone(doomed, timeout_s)
