"""Processor time of a stack's programs over a window, in cores."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

import psutil

from jobs.stack.stack import Stack

CONTROL = ("web", "planning", "beat", "redis", "supervisord", "run")


@dataclass
class Processor:
    """Begins when it is made; a program that is started anew within the window counts from then."""

    stack: Stack
    _began: dict[str, float] = field(default_factory=dict)
    _at: float = field(default_factory=time.monotonic)

    def __post_init__(self) -> None:
        self._began = self._times()

    def _times(self) -> dict[str, float]:
        """s of processor time by program, user and system."""
        found = {}
        for name, pid in self.stack.pids().items():
            try:
                times = psutil.Process(pid).cpu_times()
            except psutil.NoSuchProcess:
                continue
            found[name] = times.user + times.system
        return found

    def cores(self) -> dict[str, float]:
        """By program, since this was made."""
        passed_s = time.monotonic() - self._at
        return {
            name: max(0.0, seconds - self._began.get(name, 0.0)) / passed_s
            for name, seconds in self._times().items()
        }


def control_cores(cores: dict[str, float]) -> float:
    """Of what orchestrates: web, planning, beat, redis, and who keeps them alive."""
    return sum(value for name, value in cores.items() if name in CONTROL)
