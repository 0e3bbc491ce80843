"""Calls of one source that come at about the same time, scored in one go.

Invariant: the first one waits for nobody. Whoever comes while a batch is under way goes with the
next.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from .results import Score

MAX_ROWS = 64  # of a batch: a bad row makes all of them run again one by one

_Key = tuple[str, str]  # tenant and source
_Call = tuple[Mapping[str, Any], "asyncio.Future[Score]"]


class Batches:
    """Use from one event loop."""

    def __init__(
        self,
        score: Callable[[str, str, Sequence[Mapping[str, Any]]], Awaitable[list[Score]]],
    ) -> None:
        self._score = score
        self._waiting: dict[_Key, deque[_Call]] = {}
        self._running: dict[_Key, asyncio.Task[None]] = {}

    async def score(self, tenant: str, source: str, call: Mapping[str, Any]) -> Score:
        """The call's score. Cancelled: the others of its batch are scored all the same."""
        key, loop = (tenant, source), asyncio.get_running_loop()
        future: asyncio.Future[Score] = loop.create_future()
        self._waiting.setdefault(key, deque()).append((call, future))
        if key not in self._running:
            self._running[key] = loop.create_task(self._run(key))
        return await future

    async def _run(self, key: _Key) -> None:
        """Score what waits until nothing does."""
        batch: list[_Call] = []
        try:
            while batch := self._next(key):
                scores = await self._score(*key, [call for call, _ in batch])
                for (_, future), score in zip(batch, scores, strict=True):
                    if not future.done():
                        future.set_result(score)
        except BaseException as error:
            for _, future in [*batch, *self._waiting.get(key, ())]:
                if not future.done():
                    future.set_exception(error)
            if not isinstance(error, Exception):
                raise
        finally:
            self._waiting.pop(key, None)
            del self._running[key]

    def _next(self, key: _Key) -> list[_Call]:
        """Calls that are still waited for, oldest first."""
        waiting = self._waiting[key]
        batch: list[_Call] = []
        while waiting and len(batch) < MAX_ROWS:
            call, future = waiting.popleft()
            if not future.done():
                batch.append((call, future))
        return batch
