"""Requests of pages are counted as those of the API are, with the same counters."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils.deprecation import MiddlewareMixin

from jobs.api.throttles import ByUser, Writes

COUNTED_ELSEWHERE = ("/api/", "/health/")


class RequestLimit(MiddlewareMixin):
    """Answers 429 to a user, or to an address nobody is signed in from, that asks too often."""

    def process_request(self, request: HttpRequest) -> HttpResponse | None:
        """None: go on."""
        if request.path.startswith(COUNTED_ELSEWHERE):
            return None
        for limit in (ByUser(), Writes()):
            if not limit.allow_request(request, None):
                answer = render(request, "429.html", status=429)
                answer["Retry-After"] = f"{limit.wait():.0f}"
                return answer
        return None
