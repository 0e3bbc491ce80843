"""Which explanations of a plan are told now: while only counts in it move, one a task a second.

A step of many groups changes its task's sentence with each; every telling is a row, two events and
a redrawn page. What is not told now, the next plan commands again.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from engine.manager.snapshot import Command, Explain

TOLD_EVERY_S = 1.0

_told: dict[str, tuple[float, str]] = {}  # by task: when (monotonic), which phase


def told_now(commands: Sequence[Command], most: int, now: float | None = None) -> list[Command]:
    """The first `most` commands without explanations that may wait; those that stay are told."""
    now = time.monotonic() if now is None else now
    for task in [task for task, (at, _) in _told.items() if now - at >= TOLD_EVERY_S]:
        del _told[task]
    due = [command for command in commands if not _may_wait(command)][:most]
    _told.update({c.task: (now, c.phase) for c in due if isinstance(c, Explain)})
    return due


def _may_wait(command: Command) -> bool:
    return isinstance(command, Explain) and _told.get(command.task, (0.0, ""))[1] == command.phase
