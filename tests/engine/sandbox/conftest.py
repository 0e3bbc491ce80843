"""Real sandboxes, on an event loop in a thread of its own, as a worker has it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import pytest

from engine.sandbox import Sandboxes, Score

Run = Callable[[Coroutine[Any, Any, Any]], Any]


def call(completion: str = "", **row: Any) -> dict[str, Any]:
    """What a reward function is given of one completion."""
    messages = [{"role": "system", "content": "Add."}, {"role": "user", "content": "2 + 2?"}]
    return {"completion": completion, "row": row, "messages": messages}


@pytest.fixture(scope="session")
def run() -> Iterator[Run]:
    """Runs a coroutine on the loop and returns what it returns."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    yield lambda coroutine: asyncio.run_coroutine_threadsafe(coroutine, loop).result(120)
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()


@pytest.fixture(scope="session")
def sandboxes(run: Run) -> Iterator[Sandboxes]:
    async def made() -> Sandboxes:
        return Sandboxes()

    found = run(made())
    yield found
    run(found.close())


@pytest.fixture
def score(run: Run, sandboxes: Sandboxes) -> Callable[..., Score]:
    """One completion's score by a source."""

    def one(source: str, completion: str = "", tenant: str = "alice", **row: Any) -> Score:
        [found] = run(sandboxes.score(tenant, source, [call(completion, **row)]))
        return found

    return one
