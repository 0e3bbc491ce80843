"""Who may use one of a few places next, fairly between tenants.

Invariants: never more holders than places; of one tenant never all of them, where there are two or
more; a free place goes to the tenant that has waited since its last turn. Use from one event loop.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

MAX_WAITING = 1_000  # calls of one tenant


class CrowdedError(Exception):
    """A tenant has too many calls waiting."""


class Turns:
    """Places, and those who wait for one."""

    def __init__(self, num_places: int) -> None:
        self._free = num_places
        self._max_of_tenant = max(1, num_places - 1)
        self._holding: Counter[str] = Counter()
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}  # first: whose turn it is

    @asynccontextmanager
    async def turn(self, tenant: str) -> AsyncIterator[None]:
        """Hold a place, when it is the tenant's turn. Raises: CrowdedError."""
        await self._take(tenant)
        try:
            yield
        finally:
            self._give_back(tenant)

    async def _take(self, tenant: str) -> None:
        queue = self._waiting.setdefault(tenant, deque())
        if len(queue) >= MAX_WAITING:
            raise CrowdedError(f"{MAX_WAITING:,} calls of this tenant wait already")
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        queue.append(future)
        self._grant()
        try:
            await future
        except asyncio.CancelledError:
            if future.done() and not future.cancelled():
                self._give_back(tenant)
            elif future in queue:
                queue.remove(future)
                self._forget(tenant)
            raise

    def _give_back(self, tenant: str) -> None:
        self._free += 1
        self._holding[tenant] -= 1
        if not self._holding[tenant]:
            del self._holding[tenant]
        self._grant()

    def _grant(self) -> None:
        """Give free places away while somebody may have one."""
        while self._free and (tenant := self._next()) is not None:
            queue = self._waiting.pop(tenant)
            future = queue.popleft()
            if queue:
                self._waiting[tenant] = queue  # at the end of the line
            if future.cancelled():  # its caller has left, and was not yet told
                continue
            self._free -= 1
            self._holding[tenant] += 1
            future.set_result(None)

    def _next(self) -> str | None:
        allowed = (t for t in self._waiting if self._holding[t] < self._max_of_tenant)
        return next(allowed, None)

    def _forget(self, tenant: str) -> None:
        if not self._waiting.get(tenant, True):
            del self._waiting[tenant]
