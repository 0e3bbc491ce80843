"""A tool over HTTP that takes as long as it is told to, and an environment that always calls it.

The server's answers come after a time drawn evenly from `latency_s`, which may be changed while it
runs. Whatever the policy writes, `AlwaysCall` asks the tool and lets the episode go on.
"""

from __future__ import annotations

import asyncio
import os
import random
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from engine.environments import Chat, Context, Reply
from engine.environments.episode import last_answer
from engine.types import ToolCall, Trajectory

AGAIN = "Wrong. Again, only the number."
URL = "MARLAAS_SLOW_TOOL_URL"  # in the surroundings of the environment worker
TIMEOUT_S = 3_600.0


class SlowToolServer:
    """A context manager, in a thread and an event loop of its own."""

    def __init__(self, latency_s: tuple[float, float] = (0.0, 0.0), seed: int = 0) -> None:
        self.latency_s = latency_s
        self.num_calls = self.num_waiting = 0
        self._random = random.Random(seed)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self.port = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/"

    def __enter__(self) -> Self:
        self._thread.start()
        starting = asyncio.start_server(self._serve, "127.0.0.1", 0, backlog=2_000)
        self._server = asyncio.run_coroutine_threadsafe(starting, self._loop).result()
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.run_coroutine_threadsafe(self._end(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _end(self) -> None:
        """Leave those that still wait without an answer."""
        self._server.close()
        waiting = asyncio.all_tasks() - {asyncio.current_task()}
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Requests without a body, one after the other on a connection."""
        try:
            while await reader.readuntil(b"\r\n\r\n"):
                self.num_calls += 1
                self.num_waiting += 1
                try:
                    await asyncio.sleep(self._random.uniform(*self.latency_s))
                finally:
                    self.num_waiting -= 1
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass  # the client is gone, or the server ends
        finally:
            writer.close()


@dataclass(frozen=True)
class AlwaysCall:
    """Calls the slow tool after every turn, and never ends an episode by itself."""

    has_turns: ClassVar[bool] = True

    def encode_prompt(self, messages: Sequence[Mapping[str, Any]], chat: Chat) -> list[int]:
        return chat.encode_chat(messages)

    async def answer(self, trajectory: Trajectory, row: dict[str, Any], context: Context) -> Reply:
        outbound = context.services.need("outbound")
        async with context.services.tool_slots:
            answer = await outbound.request(
                context.services.tenant, "GET", os.environ[URL], timeout_s=TIMEOUT_S
            )
        last = last_answer(trajectory)
        ids = context.chat.encode_reply([{"role": "user", "content": AGAIN}], last[-1])
        call = ToolCall("slow", "", "" if answer.is_ok else f"status {answer.status}")
        return Reply(False, AGAIN, tuple(ids), (call,))
