"""What an episode waits for just now, and since when: for people, who ask why nothing moves.

Whoever hosts an episode watches it with an `Activity`; what makes it wait says so around the wait.
Episodes are tasks of one event loop, each in a context of its own, so none sees another's.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

TOOL = "tool"  # and its name
GRADING = "grading"
ENVIRONMENT = "environment"  # whatever else an environment does


@dataclass
class Activity:
    """Written by the episode, read by any thread."""

    what: str = ""  # one of the above, a tool's with its name behind it; "": it does not wait
    since: float = 0.0  # epoch s


_watched: ContextVar[Activity | None] = ContextVar("activity", default=None)


def watch(activity: Activity) -> None:
    """From here on in this context, waits are told to it."""
    _watched.set(activity)


@contextmanager
def waiting_for(what: str) -> Iterator[None]:
    """Tell whoever watches; afterwards the wait around this one, if any, goes on."""
    activity = _watched.get()
    if activity is None:
        yield
        return
    before = activity.what
    activity.what, activity.since = what, time.time()
    try:
        yield
    finally:
        activity.what, activity.since = before, time.time()
