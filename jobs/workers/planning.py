"""The planning worker: one process, one plan at a time."""

from __future__ import annotations

import logging
import time

from redis.exceptions import RedisError

from jobs.services import planner_bell
from jobs.services.planning import plan_once
from marlaas_site.celery import app

MIN_INTERVAL_S = 0.05  # at most 20 plans a second; what rings meanwhile is in the next one
MAX_ROUNDS = 10  # a plan's own consequences (step opened → groups to dispatch) are planned at once

log = logging.getLogger(__name__)
_last = 0.0


@app.task(name="planning.tick")
def tick() -> None:
    """Look, decide, act, until nothing more follows."""
    global _last
    time.sleep(max(0.0, _last + MIN_INTERVAL_S - time.monotonic()))
    planner_bell.heard()
    try:
        for _ in range(MAX_ROUNDS):
            if not plan_once():
                break
    except RedisError as error:
        log.warning("no plan without Redis: %s", error)
    _last = time.monotonic()
