"""Refuses bodies that no endpoint takes before they fill memory or disk.

Django's ASGI handler stores a whole body before any view, sign-in or parser looks at it, so the
limit has to stand in front.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Any

Message = dict[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Message, Receive, Send], Awaitable[None]]


class BodyLimit:
    """An ASGI application that lets at most `limit` bytes of a body through to another."""

    def __init__(self, app: App, limit: int) -> None:
        self.app = app
        self.limit = limit

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Answers 413 itself, by the announced length or once too much has come."""
        if scope["type"] == "http" and _announced(scope) > self.limit:
            await self._refuse(send)
        elif scope["type"] == "http":
            await self._count(scope, receive, send)
        else:
            await self.app(scope, receive, send)

    async def _count(self, scope: Message, receive: Receive, send: Send) -> None:
        size = 0

        async def counted() -> Message:
            nonlocal size
            message = await receive()
            size += len(message.get("body", b""))
            return {"type": "http.disconnect"} if size > self.limit else message

        async def passed(message: Message) -> None:
            if size <= self.limit:
                await send(message)

        await self.app(scope, counted, passed)
        if size > self.limit:
            await self._refuse(send)

    async def _refuse(self, send: Send) -> None:
        message = f"A request may have at most {self.limit // 2**20} MiB."
        body = json.dumps({"code": "too_large", "message": message}).encode()
        headers = [(b"content-type", b"application/json"), (b"connection", b"close")]
        await send({"type": "http.response.start", "status": 413, "headers": headers})
        await send({"type": "http.response.body", "body": body})


def _announced(scope: Message) -> int:
    lengths = [value for name, value in scope["headers"] if name == b"content-length"]
    return int(lengths[0]) if lengths and lengths[0].isdigit() else 0
