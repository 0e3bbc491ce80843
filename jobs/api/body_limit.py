"""Refuses bodies that no endpoint takes before they fill memory or disk, or take for ever.

Django's ASGI handler stores a whole body before any view, sign-in or parser looks at it, so the
limits have to stand in front. Only a few paths take large bodies, from people who are signed in,
and few at once; everything else has a small limit.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

Message = dict[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Message, Receive, Send], Awaitable[None]]

STALL_S = 30.0  # without a single byte
BODY_S = 600.0  # for a whole body at least
SLOWEST_BYTES_S = 2**17  # of a large one: 1 Mbit/s
LARGE_AT_ONCE = 2  # large bodies of one person


class BodyLimit:
    """An ASGI application that lets at most `limit` bytes of a body through to another.

    larger: paths that take more, with their limits. who: tells who sends a request, "" for nobody
    known; without it, everybody may send large bodies.
    """

    def __init__(
        self,
        app: App,
        limit: int,
        larger: Mapping[str, int] | None = None,
        who: Callable[[Message], Awaitable[str]] | None = None,
    ) -> None:
        self.app = app
        self.limit = limit
        self.larger = larger or {}
        self.who = who
        self._sending: Counter[str] = Counter()  # large bodies under way, by person

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Answers 413 itself to what is too large, announced or not, and 408 to what is slow."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        limit = self.larger.get(scope.get("path", ""), self.limit)
        if _announced(scope) > limit:
            await _refuse(send, *_too_large(limit))
            return
        if self.who is None or not _is_large(scope, self.limit):
            # What is not announced as large need not be let become so.
            await self._pass(scope, receive, send, limit if self.who is None else self.limit)
            return
        person = await self.who(scope)
        if not person:
            await _refuse(send, *_unknown(self.limit))
        elif self._sending[person] >= LARGE_AT_ONCE:
            await _refuse(send, *_busy())
        else:
            self._sending[person] += 1
            try:
                await self._pass(scope, receive, send, limit)
            finally:
                self._sending[person] -= 1
                self._sending += Counter()  # without those that are at 0

    async def _pass(self, scope: Message, receive: Receive, send: Send, limit: int) -> None:
        body = _Body(receive, limit)

        async def passed(message: Message) -> None:
            if not body.problem:
                await send(message)

        await self.app(scope, body.receive, passed)
        if body.problem:
            await _refuse(send, *body.problem)


class _Body:
    """A body on its way in. Where it breaks a limit, the application sees the client leave."""

    def __init__(self, receive: Receive, limit: int) -> None:
        self._receive, self._limit, self._size = receive, limit, 0
        self._is_whole = False
        within_s = max(BODY_S, limit / SLOWEST_BYTES_S)
        self._ends_at = asyncio.get_running_loop().time() + within_s
        self.problem: tuple[int, str, str] | None = None  # status, code, message

    async def receive(self) -> Message:
        """The next piece; once the body is whole, whatever else comes, however late."""
        if self._is_whole:
            return await self._receive()
        try:
            left = self._ends_at - asyncio.get_running_loop().time()
            async with asyncio.timeout(min(STALL_S, left)):
                message = await self._receive()
        except TimeoutError:
            self.problem = 408, "too_slow", "The request did not arrive in time."
            return {"type": "http.disconnect"}
        self._size += len(message.get("body", b""))
        self._is_whole = not message.get("more_body", False)
        if self._size > self._limit:
            self.problem = _too_large(self._limit)
            return {"type": "http.disconnect"}
        return message


def _too_large(limit: int) -> tuple[int, str, str]:
    return 413, "too_large", f"A request may have at most {limit // 2**20} MiB."


def _unknown(limit: int) -> tuple[int, str, str]:
    message = f"Sign in, or send a token, to upload more than {limit // 2**20} MiB."
    return 401, "not_authenticated", message


def _busy() -> tuple[int, str, str]:
    message = f"{LARGE_AT_ONCE} uploads of yours are under way; let one end first."
    return 429, "throttled", message


def _is_large(scope: Message, limit: int) -> bool:
    """Whether a body may turn out large: it says so, or does not say how large it is."""
    return _announced(scope) > limit or any(
        name == b"transfer-encoding" for name, _ in scope["headers"]
    )


async def _refuse(send: Send, status: int, code: str, message: str) -> None:
    body = json.dumps({"code": code, "message": message}).encode()
    headers = [(b"content-type", b"application/json"), (b"connection", b"close")]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def _announced(scope: Message) -> int:
    lengths = [value for name, value in scope["headers"] if name == b"content-length"]
    return int(lengths[0]) if lengths and lengths[0].isdigit() else 0
