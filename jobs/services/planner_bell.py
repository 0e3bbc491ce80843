"""Tells the planner that something changed. Losing a ring costs at most a second."""

import logging

from celery.exceptions import OperationalError as BrokerError
from django.conf import settings
from redis import Redis
from redis.exceptions import RedisError

from marlaas_site.celery import app

log = logging.getLogger(__name__)

_redis = Redis.from_url(settings.REDIS_URL, socket_timeout=2, socket_connect_timeout=2)
DIRTY = f"{settings.REDIS_PREFIX}:planner:dirty"


def ring_planner() -> None:
    """Ask for a plan; rings before the planner hears the first are one. Never raises."""
    try:
        if _redis.set(DIRTY, 1, nx=True, ex=2):
            app.send_task("planning.tick", queue="planning", retry=False, expires=5)
    except (RedisError, BrokerError, OSError) as error:
        log.warning("planner not rung, it looks by itself every second: %s", error)


def heard() -> None:
    """Called by the planner before it looks: from now on a ring is a new one."""
    try:
        _redis.delete(DIRTY)
    except RedisError as error:
        log.warning("planner bell not reset: %s", error)
