"""Starts one program of the stack: `python -S -m jobs.stack.guard RUN_DIR NAME COMMAND…`.

Three things happen before the command takes this process over (exec, so the pid stays):
1. on Linux the kernel is told to kill it when supervisord dies, so nothing holds ports;
2. its pid is written to RUN_DIR/programs/, by which the stack is found, and cleaned up elsewhere;
3. a program that keeps ending within seconds waits 1, 2, 4, … at most 8 s. supervisor's own
   back-off grows without a bound, and after an hour of outage would sleep over the recovery.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import time
from pathlib import Path

from . import processes

PR_SET_PDEATHSIG = 1  # linux/prctl.h
SHORT_LIFE_S = 10.0
LONGEST_WAIT_S = 8.0


def main(arguments: list[str]) -> None:
    run_dir, name, command = Path(arguments[0]), arguments[1], arguments[2:]
    die_with_parent()
    if not is_parent_the_supervisor(run_dir / "supervisord.pid"):
        sys.exit(f"{name}: supervisord ended before this started")
    path = run_dir / "programs" / f"{name}.json"
    failures = short_lives(processes.read(path), time.time())
    processes.record(path, os.getpid(), failures=failures, began=time.time())
    time.sleep(wait_s(failures))
    processes.record(path, os.getpid(), failures=failures, began=time.time())
    os.execvp(command[0], command)  # noqa: S606 (our own configuration)


def die_with_parent() -> None:
    """Linux: SIGKILL when the thread that started us ends. supervisord has only one."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def is_parent_the_supervisor(pid_file: Path) -> bool:
    """False if supervisord died before `die_with_parent` took effect: we have another parent."""
    try:
        return int(pid_file.read_text()) == os.getppid()
    except (OSError, ValueError):
        return False


def short_lives(last: dict[str, object], now: float) -> int:
    """How many lives in a row were short, the last one included. last: its record, {} if none."""
    if not last or now - float(str(last["began"])) >= SHORT_LIFE_S:
        return 0
    return int(str(last["failures"])) + 1


def wait_s(failures: int) -> float:
    return 0.0 if failures == 0 else min(2.0 ** (failures - 1), LONGEST_WAIT_S)


if __name__ == "__main__":
    main(sys.argv[1:])
