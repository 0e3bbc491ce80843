"""Peak memory of a stack, sampled while it works."""

from __future__ import annotations

import threading
from pathlib import Path

from jobs.stack.stack import Stack

INTERVAL_S = 2.0


class PeakMemory:
    """Samples the proportional set size of every process of a stack, on Linux.

    Pages that processes share count once in all. Use it as a context manager; then `mib` holds the
    largest sum seen and `by_program` each program's own largest, in MiB. Elsewhere both stay empty.
    """

    def __init__(self, stack: Stack) -> None:
        self._stack = stack
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.mib = 0.0
        self.by_program: dict[str, float] = {}

    def __enter__(self) -> PeakMemory:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stop.wait(INTERVAL_S):
            sizes = {name: pss_mib(pid) for name, pid in self._stack.pids().items()}
            self.mib = max(self.mib, sum(sizes.values()))
            for name, size in sizes.items():
                self.by_program[name] = max(size, self.by_program.get(name, 0.0))


def pss_mib(pid: int) -> float:
    """Proportional set size of a process; 0 where there is none to be had."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:  # it has just ended, or this is no Linux
        return 0.0
    return next((int(x.split()[1]) / 1024 for x in lines if x.startswith("Pss:")), 0.0)
