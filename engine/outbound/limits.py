"""How fast a tenant may call, and when a server that fails is left alone; told the time."""

from __future__ import annotations


class TokenBucket:
    """At most `burst` calls at once and `per_s` a second in the long run."""

    def __init__(self, per_s: float, burst: int) -> None:
        self._per_s = per_s
        self._burst = float(burst)
        self._tokens = float(burst)
        self._seen_at = 0.0

    def take(self, now: float, max_wait_s: float) -> float | None:
        """Take a token, possibly one still to come. Returns the seconds until it is there; None,
        and takes none, if that is longer than the caller would wait."""
        self._tokens = min(self._burst, self._tokens + max(0.0, now - self._seen_at) * self._per_s)
        self._seen_at = now
        wait_s = max(0.0, (1.0 - self._tokens) / self._per_s)
        if wait_s > max_wait_s:
            return None
        self._tokens -= 1.0
        return wait_s


class Breaker:
    """Opens after some failures in a row; after a pause lets single calls through until one
    succeeds."""

    def __init__(self, num_failures: int, pause_s: float) -> None:
        self._limit = num_failures
        self._pause_s = pause_s
        self._failures = 0
        self._next_trial_at = 0.0  # while open

    def admit(self, now: float) -> bool:
        """Whether a call may be made. One that may, of an open breaker, is the trial of a pause."""
        if self._failures < self._limit:
            return True
        if now < self._next_trial_at:
            return False
        self._next_trial_at = now + self._pause_s  # a trial that never ends delays only the next
        return True

    def succeeded(self) -> None:
        self._failures = 0

    def failed(self, now: float) -> None:
        self._failures += 1
        if self._failures >= self._limit:
            self._next_trial_at = now + self._pause_s
