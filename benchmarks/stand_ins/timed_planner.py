"""Times the planner of a stack: `watch` wraps its two functions where this process plans.

Named in ENVIRONMENT_CLASSES, so that every process of the stack imports this module before it
begins; it acts only in the planning worker, and only where MARLAAS_PLAN_TIMES names a file. There
it appends a line for each plan: what was timed, seconds by the clock, commands.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from .emulated_tools import EmulatedTools

SETTING = "MARLAAS_PLAN_TIMES"
__all__ = ["EmulatedTools"]


def watch() -> None:
    """Wrap `plan` and `plan_once` of the service."""
    from jobs.services import planning

    planning.plan = _timed("plan", planning.plan, len)  # type: ignore[assignment]
    planning.plan_once = _timed("plan_once", planning.plan_once, int)  # type: ignore[assignment]


def _timed(name: str, work: Callable[..., Any], count: Callable[[Any], int]) -> Callable[..., Any]:
    file = open(os.environ[SETTING], "a", buffering=1)  # noqa: SIM115 (as long as the process)

    def timed(*args: Any) -> Any:
        began = time.perf_counter()
        found = work(*args)
        file.write(f"{name} {time.perf_counter() - began:.6f} {count(found)}\n")
        return found

    return timed


def read_times(path: Path) -> dict[str, list[float]]:
    """Seconds of each plan, by what was timed."""
    found: dict[str, list[float]] = {"plan": [], "plan_once": []}
    for line in path.read_text().splitlines():
        name, seconds, _ = line.split()
        found[name].append(float(seconds))
    return found


if os.environ.get("MARLAAS_WORKER_KIND") == "planning" and SETTING in os.environ:
    watch()
