"""Coroutines that live and end together."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any


async def until_one_ends(*jobs: Coroutine[Any, Any, None]) -> None:
    """Run jobs together until the first one ends, end the others, and raise what it raised.

    A job is cancelled until it ends: asgiref and redis-py may each swallow one cancellation, and a
    job that goes on would keep its socket open for ever.
    """
    tasks = [asyncio.ensure_future(job) for job in jobs]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        running = {task for task in tasks if not task.done()}
        while running:
            for task in running:
                task.cancel()
            _, running = await asyncio.wait(running, timeout=0.2)
    for task in done:
        task.result()
