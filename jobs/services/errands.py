"""Questions that only an environment worker can answer, asked by a page that waits.

A tenant's Python, servers and judges are never called from the web process: it sends an errand to
the environment's queue and waits on Redis for the answer. Nobody else reads it; one that comes too
late expires. Both ways are bounded in bytes, and so is the number of errands that wait at once.
"""

from __future__ import annotations

import contextlib
import json
import threading
import time
import uuid
from collections import Counter
from collections.abc import Iterator
from typing import Any

from django.conf import settings
from django.db import connection
from redis.exceptions import RedisError

from engine.errors import MarlaasError, QuotaError
from jobs.models import Worker
from jobs.services import dispatch, joins
from jobs.services.heartbeats import living_workers

QUEUE = "environment"
MAX_BYTES = 2**20  # of a question, and of an answer
MAX_WAITING = 16  # errands of this process at once: each holds a thread of it
MAX_WAITING_OF_TENANT = 4
ANSWER_KEPT_S = 60
POLL_S = 2.0  # less than the Redis client's socket timeout

_waiting: Counter[str] = Counter()  # errands under way, by tenant
_lock = threading.Lock()


class ErrandError(MarlaasError):
    """There is no answer, and it is not the asker's fault."""


def ask(kind: str, tenant: str, payload: dict[str, Any], timeout_s: float) -> Any:
    """What a worker answers to an errand of `jobs.workers.errands`.

    tenant: its key. Raises: QuotaError if it asks for too much at once; ErrandError, with what to
    do, if there is no answer.
    """
    question = json.dumps(payload)
    if len(question) > MAX_BYTES:
        raise QuotaError(
            f"This is {len(question):,} bytes, {MAX_BYTES:,} may be sent at once; try fewer or"
            " shorter samples."
        )
    with _turn(tenant):
        if not _has_worker():
            raise ErrandError(
                "No environment worker is running, so nothing can be tried now. Ask the operator,"
                " or look at /health/ready."
            )
        if not connection.in_atomic_block:
            connection.close()  # it may come from a pool, and is not needed while this waits
        return _answer(kind, tenant, question, timeout_s)


def _answer(kind: str, tenant: str, question: str, timeout_s: float) -> Any:
    """Raises: ErrandError."""
    key = f"{settings.REDIS_PREFIX}:errand:{uuid.uuid4().hex}"
    ends_at = time.time() + timeout_s
    message = {"kind": kind, "tenant": tenant, "question": question}
    if not dispatch.send("environment.errand", QUEUE, {**message, "key": key, "ends_at": ends_at}):
        raise ErrandError("The queue does not answer. Try again in a minute.")
    found = _wait(key, ends_at)
    if found is None:
        raise ErrandError(
            f"No environment worker answered within {timeout_s:g} s: all are busy, or one is just"
            " starting. Try again in a minute."
        )
    answer = json.loads(found)
    if "error" in answer:
        raise ErrandError(answer["error"])
    return answer["result"]


def _wait(key: str, ends_at: float) -> str | bytes | None:
    """The answer under a key, None if there is none in time. Raises: ErrandError."""
    try:
        while (left_s := ends_at - time.time()) > 0:
            if pair := joins.redis.blpop([key], timeout=max(0.05, min(POLL_S, left_s))):
                return pair[1]
    except RedisError:
        raise ErrandError("The queue was lost while this waited. Try again in a minute.") from None
    return None


def reply(key: str, answer: dict[str, Any]) -> None:
    """Give the answer, {"result": …} or {"error": sentence}, to whoever waits under the key."""
    text = json.dumps(answer)
    if len(text) > MAX_BYTES:
        text = json.dumps({"error": f"The answer has more than {MAX_BYTES:,} bytes; try less."})
    with joins.redis.pipeline() as pipe:
        pipe.rpush(key, text)
        pipe.expire(key, ANSWER_KEPT_S)
        pipe.execute()


@contextlib.contextmanager
def _turn(tenant: str) -> Iterator[None]:
    """A place among those that wait. Raises: QuotaError if there is none."""
    with _lock:
        if _waiting[tenant] >= MAX_WAITING_OF_TENANT or _waiting.total() >= MAX_WAITING:
            raise QuotaError("Too many reward functions are being tried; let one end first.")
        _waiting[tenant] += 1
    try:
        yield
    finally:
        with _lock:
            _waiting[tenant] -= 1
            if not _waiting[tenant]:
                del _waiting[tenant]


def _has_worker() -> bool:
    return bool(living_workers(Worker.Kind.ENVIRONMENT))
