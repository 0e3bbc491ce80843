"""Which tenant has which child, and who waits for one.

Invariants: a child serves one tenant in its life and one call at a time; there are never more than
so many; a tenant has at most one, so nobody takes the others' share. Who waits longest comes next;
a tenant with many calls goes to the end of the line after each turn of a second.
"""

from __future__ import annotations

import asyncio
import errno
import itertools
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from time import monotonic

from .process import Child

TURN_S = 1.0  # how long a tenant may go on while others wait: a new child costs a tenth of it
IDLE_S = 60.0
SESSION_IDLE_S = 900.0  # with state of the python tool: a turn may take minutes to generate
SWEEP_S = 5.0


@dataclass(eq=False)
class _Place:
    """Room for one child."""

    tenant: str | None  # None: a spare one
    child: Child | None = None  # None: being started
    is_busy: bool = False
    turn_began: float = 0.0
    last_used: float = field(default_factory=monotonic)
    start: asyncio.Task[None] | None = None


class Pool:
    """Use from one event loop."""

    def __init__(self, start: Callable[[], Awaitable[Child]], max_children: int) -> None:
        self._start = start
        self._max_children = max_children
        self._places: list[_Place] = []
        self._waiting: dict[str, deque[asyncio.Future[_Place]]] = {}
        self._rank: dict[str, int] = {}  # of waiting tenants; the lowest comes next
        self._next_rank = itertools.count()
        self._sweeper: asyncio.TimerHandle | None = None
        self._ending: set[asyncio.Task[None]] = set()

    @property
    def children(self) -> list[Child]:
        return [place.child for place in self._places if place.child is not None]

    @asynccontextmanager
    async def child_of(self, tenant: str) -> AsyncIterator[Child]:
        """The tenant's child, for one call. Raises: what starting one raised."""
        place = await self._place(tenant)
        assert place.child is not None
        try:
            yield place.child
        finally:
            self._release(place)

    async def close(self) -> None:
        """End all children, and refuse whoever waits."""
        if self._sweeper is not None:
            self._sweeper.cancel()
        waiting = [future for queue in self._waiting.values() for future in queue]
        self._waiting.clear()
        self._rank.clear()
        _refuse(waiting, OSError(errno.ESHUTDOWN, "it is being closed"))
        starting = [place.start for place in self._places if place.start is not None]
        for place in list(self._places):
            self._drop(place)
        await asyncio.gather(*starting, return_exceptions=True)
        await asyncio.gather(*self._ending, return_exceptions=True)

    async def _place(self, tenant: str) -> _Place:
        future: asyncio.Future[_Place] = asyncio.get_running_loop().create_future()
        if tenant not in self._rank:
            self._rank[tenant] = next(self._next_rank)
        self._waiting.setdefault(tenant, deque()).append(future)
        self._assign()
        try:
            return await future
        except asyncio.CancelledError:
            if future.done() and not future.cancelled() and future.exception() is None:
                self._release(future.result())
            else:
                self._leave(tenant, future)
            raise

    def _leave(self, tenant: str, future: asyncio.Future[_Place]) -> None:
        queue = self._waiting.get(tenant, deque())
        if future in queue:
            queue.remove(future)
        if not queue:
            self._waiting.pop(tenant, None)
            self._rank.pop(tenant, None)

    def _assign(self) -> None:
        """Give what can be given, to those who wait longest first."""
        for tenant in sorted(self._waiting, key=self._rank.__getitem__):
            place = self._place_for(tenant)
            if place is not None and place.child is not None and not place.is_busy:
                self._give(place, tenant)
        has_room = 0 < len(self._places) < self._max_children
        if has_room and all(place.tenant is not None for place in self._places):
            self._open(None)  # a spare one hides the start of the next tenant's
        if self._sweeper is None and self._places:
            self._sweeper = asyncio.get_running_loop().call_later(SWEEP_S, self._sweep)

    def _give(self, place: _Place, tenant: str) -> None:
        queue = self._waiting[tenant]
        while queue and not place.is_busy:
            future = queue.popleft()
            if not future.done():  # cancelled a moment ago, and not yet out of the line
                place.is_busy = True
                future.set_result(place)
        if not queue:
            del self._waiting[tenant], self._rank[tenant]

    def _place_for(self, tenant: str) -> _Place | None:
        """The tenant's place, or one that it takes now; None while all are in use."""
        for place in self._places:
            if place.tenant == tenant:
                if place.child is None or place.is_busy or place.child.is_alive:
                    return place
                self._drop(place)  # it died while it was idle
                break
        spare = next((place for place in self._places if place.tenant is None), None)
        if spare is not None and spare.child is not None and not spare.child.is_alive:
            self._drop(spare)
            spare = None
        if spare is not None:
            spare.tenant, spare.turn_began = tenant, monotonic()
            return spare
        if len(self._places) >= self._max_children and not self._evict():
            return None
        return self._open(tenant)

    def _evict(self) -> bool:
        """End the child that was idle longest; those with the python tool's state go last."""
        idle = [p for p in self._places if p.child is not None and not p.is_busy]
        if not idle:
            return False
        self._drop(min(idle, key=lambda p: (bool(p.child and p.child.sessions), p.last_used)))
        return True

    def _open(self, tenant: str | None) -> _Place:
        place = _Place(tenant, turn_began=monotonic())
        self._places.append(place)
        place.start = asyncio.get_running_loop().create_task(self._fill(place))
        return place

    async def _fill(self, place: _Place) -> None:
        try:
            child = await self._start()
        except Exception as error:
            self._places = [other for other in self._places if other is not place]
            queue = self._waiting.pop(place.tenant, ()) if place.tenant is not None else ()
            self._rank.pop(place.tenant or "", None)
            _refuse(queue, error)
            if self._waiting:  # the others may have better luck
                self._assign()
            return
        finally:
            place.start = None
        place.child, place.last_used = child, monotonic()
        if place in self._places:
            self._assign()
        else:  # closed meanwhile
            self._end(child)

    def _release(self, place: _Place) -> None:
        place.is_busy, place.last_used = False, monotonic()
        tenant = place.tenant
        if tenant in self._waiting and monotonic() - place.turn_began > TURN_S:
            self._rank[tenant] = next(self._next_rank)
            place.turn_began = monotonic()
        if place.child is not None and not place.child.is_alive:
            self._drop(place)
        self._assign()

    def _drop(self, place: _Place) -> None:
        if place in self._places:
            self._places.remove(place)
        if place.child is not None:
            self._end(place.child)

    def _end(self, child: Child) -> None:
        task = asyncio.get_running_loop().create_task(child.end())
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)

    def _sweep(self) -> None:
        """End children that were idle for long, and look again later."""
        now = monotonic()
        self._sweeper = None
        for place in list(self._places):
            if place.tenant is None or place.child is None or place.is_busy:
                continue
            limit_s = SESSION_IDLE_S if place.child.sessions else IDLE_S
            if now - place.last_used > limit_s:
                self._drop(place)
        if self._places:
            self._sweeper = asyncio.get_running_loop().call_later(SWEEP_S, self._sweep)


def _refuse(futures: Iterable[asyncio.Future[_Place]], error: Exception) -> None:
    for future in futures:
        if not future.done():
            future.set_exception(error)
