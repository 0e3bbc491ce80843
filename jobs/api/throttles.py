"""How many requests a user may make in a window of time.

Counters live in the cache. Without it requests pass: a lost Redis must not lock people out.
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING

from django.core.cache import cache
from django.http import HttpRequest
from redis.exceptions import RedisError
from rest_framework.permissions import SAFE_METHODS
from rest_framework.request import Request
from rest_framework.throttling import UserRateThrottle

if TYPE_CHECKING:  # views import this module for their defaults
    from rest_framework.views import APIView

log = logging.getLogger(__name__)

Asked = Request | HttpRequest  # an endpoint's, or a page's


class ByUser(UserRateThrottle):
    """All requests of a user (of an address, while nobody is signed in), per fixed window."""

    scope = "user"
    seconds_left = 0.0

    def allow_request(self, request: Asked, view: APIView | None) -> bool:
        """Count the request; False once the window's allowance is used up."""
        if self.rate is None:
            return True
        window, elapsed = divmod(time.time(), self.duration)
        self.seconds_left = self.duration - elapsed
        key = f"{self.get_cache_key(request, view)}:{window:.0f}"
        try:
            cache.add(key, 0, timeout=self.duration)
            return cache.incr(key) <= self.num_requests
        except (RedisError, OSError, ValueError) as error:
            log.warning("request not counted: %s", error)
            return True

    def wait(self) -> float:
        """Seconds until the next window."""
        return self.seconds_left


class Writes(ByUser):
    """Requests that change something."""

    scope = "writes"

    def allow_request(self, request: Asked, view: APIView | None) -> bool:
        """Count the request unless it only reads."""
        return request.method in SAFE_METHODS or super().allow_request(request, view)


class NewTokens(Writes):
    """Tokens made."""

    scope = "tokens"
