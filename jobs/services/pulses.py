"""Signs of life by way of Redis, from a thread that waits for nothing else.

SQLite lets one write at a time, and under heavy load a heartbeat can wait longer for its turn than
a worker may be silent. Taken for dead, what it holds would be generated again, and that is even
more to write. So the planner believes a pulse as well. It carries no figures, ends with its process
or when that is stopped, and prolongs a life by a minute at most: then the row is closed
(`retention.py`), for a worker that can never write is of no use.
"""

from __future__ import annotations

import math
import threading
import time
from typing import Any

from django.conf import settings
from redis.exceptions import RedisError

from jobs.services.joins import redis

PULSE_S = 2.0
KEPT_S = 60
KEY = f"{settings.REDIS_PREFIX}:pulses"


def give(incarnation: str) -> None:
    """The incarnation lives now. Raises: RedisError."""
    redis.hset(KEY, incarnation, repr(time.time()))


def taken() -> dict[str, float]:
    """The last pulse (epoch s) of each incarnation, if it was lately. Raises: RedisError."""
    kept: dict[Any, Any] = redis.hgetall(KEY)
    found = {one: _moment(at) for one, at in kept.items()}
    over = [one for one, at in found.items() if abs(time.time() - at) > KEPT_S]
    if over:
        redis.hdel(KEY, *over)
    return {one.decode(errors="replace"): at for one, at in found.items() if one not in over}


def _moment(text: bytes) -> float:
    """Epoch s; of long ago if it is none."""
    try:
        at = float(text)
    except ValueError:
        return 0.0
    return at if math.isfinite(at) else 0.0


class Pulse:
    """Gives the pulse of a process until it is stopped."""

    def __init__(self, incarnation: str) -> None:
        self._incarnation = incarnation
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="pulse", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def _run(self) -> None:
        pause_s = 0.0
        while not self._stop.wait(pause_s):
            pause_s = PULSE_S
            try:
                give(self._incarnation)
            except RedisError:
                continue  # the heartbeat says so, too, and the next one is soon

    def stop(self) -> None:
        self._stop.set()
