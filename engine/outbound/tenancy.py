"""What is kept for one tenant: its connections, its share of calls, and which servers failed."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

import httpcore2

from .errors import TenantBusy
from .limits import Breaker, TokenBucket

MAX_HOSTS = 100  # whose failures and paces are remembered; the longest unused is forgotten
MAX_WAIT_S = 300.0  # that a rate may hold a call up


@dataclass(frozen=True)
class Limits:
    """Of each tenant, set by the operator."""

    concurrency: int = 32  # calls under way
    max_waiting: int = 2_000  # calls that wait for their turn; a further one is refused
    per_s: float = 50.0  # calls a second in the long run
    burst: int = 100  # calls at once after a rest
    num_failures: int = 5  # in a row, after which a host is left alone
    pause_s: float = 30.0  # for so long, then one call tries


class Tenancy:
    """Belongs to one event loop."""

    def __init__(
        self,
        limits: Limits,
        make_pool: Callable[[str], httpcore2.AsyncConnectionPool],
        clock: Callable[[], float],
    ) -> None:
        self._limits = limits
        self._make_pool = make_pool
        self._clock = clock
        self._slots = asyncio.Semaphore(limits.concurrency)
        self._bucket = TokenBucket(limits.per_s, limits.burst)
        self._pools: dict[str, httpcore2.AsyncConnectionPool] = {}
        self._breakers: OrderedDict[str, Breaker] = OrderedDict()
        self._paces: OrderedDict[tuple[str, float], TokenBucket] = OrderedDict()
        self._num_calls = 0  # waiting or under way

    @property
    def is_idle(self) -> bool:
        return self._num_calls == 0

    def pool(self, scheme: str) -> httpcore2.AsyncConnectionPool:
        """The tenant's connections by http or https."""
        if scheme not in self._pools:
            self._pools[scheme] = self._make_pool(scheme)
        return self._pools[scheme]

    def may_call(self, host: str) -> bool:
        """Whether a host may be called, or has failed too often of late."""
        return self._breaker(host).admit(self._clock())

    def count(self, host: str, *, has_failed: bool) -> None:
        """Remember how a call of a host went."""
        if has_failed:
            self._breaker(host).failed(self._clock())
        else:
            self._breaker(host).succeeded()

    @asynccontextmanager
    async def turn(self, host: str, pace_per_s: float | None) -> AsyncIterator[None]:
        """Wait for a call's turn and hold it; pace: of those to this host that give the same.

        Raises: TenantBusy if too many wait already.
        """
        if self._num_calls >= self._limits.concurrency + self._limits.max_waiting:
            raise _busy(f"{self._limits.max_waiting:,} of your calls are waiting already")
        self._num_calls += 1
        try:
            if pace_per_s is not None:
                await self._wait(self._pace(host, pace_per_s))
            async with self._slots:
                await self._wait(self._bucket)
                yield
        finally:
            self._num_calls -= 1

    async def close(self) -> None:
        """Close all connections."""
        for pool in self._pools.values():
            await pool.aclose()
        self._pools.clear()

    async def _wait(self, bucket: TokenBucket) -> None:
        wait_s = bucket.take(self._clock(), MAX_WAIT_S)
        if wait_s is None:
            raise _busy(f"Your calls would wait for more than {MAX_WAIT_S:.0f} s")
        if wait_s:
            await asyncio.sleep(wait_s)

    def _pace(self, host: str, per_s: float) -> TokenBucket:
        key = (host, per_s)
        found = self._paces.setdefault(key, TokenBucket(per_s, max(1, int(per_s))))
        self._paces.move_to_end(key)
        if len(self._paces) > MAX_HOSTS:
            self._paces.popitem(last=False)
        return found

    def _breaker(self, host: str) -> Breaker:
        limits = self._limits
        found = self._breakers.setdefault(host, Breaker(limits.num_failures, limits.pause_s))
        self._breakers.move_to_end(host)
        if len(self._breakers) > MAX_HOSTS:
            self._breakers.popitem(last=False)
        return found


def _busy(what: str) -> TenantBusy:
    return TenantBusy(
        f"{what}; run fewer tasks that call servers at once, or allow more calls a minute."
    )
