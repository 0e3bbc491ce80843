"""Keeps health probes out of the log: a 503 there is an answer, not an error."""

import logging


class QuietProbes(logging.Filter):
    """Drops Django's "Service Unavailable" lines for /health/."""

    def filter(self, record: logging.LogRecord) -> bool:
        request = getattr(record, "request", None)
        return not getattr(request, "path", "").startswith("/health/")
