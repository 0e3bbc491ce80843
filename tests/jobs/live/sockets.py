"""Drives the shipped socket application in the test's own process."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from asgiref.sync import async_to_sync
from asgiref.testing import ApplicationCommunicator
from django.conf import settings
from django.db import transaction
from django.test import Client

from jobs.live.routing import websocket
from jobs.services import events
from jobs.services.events import Event


def run(story: Callable[[], Awaitable[None]]) -> None:
    """Run an async story; its database calls stay on this thread."""
    async_to_sync(story)()


def write(stream: str, *values: int) -> None:
    """Record one event a value, in one transaction."""
    with transaction.atomic():
        events.record(Event(stream, "metric", {"step": v, "metrics": {"r": v}}) for v in values)


def session_headers(user: Any, origin: str | None = "") -> list[tuple[bytes, bytes]]:
    """Handshake headers of a browser in which `user` is signed in."""
    client = Client()
    client.force_login(user)
    cookie = f"{settings.SESSION_COOKIE_NAME}={client.cookies[settings.SESSION_COOKIE_NAME].value}"
    headers = [(b"cookie", cookie.encode())]
    if origin is not None:
        headers.append((b"origin", (origin or settings.CSRF_TRUSTED_ORIGINS[0]).encode()))
    return headers


@asynccontextmanager
async def connected(
    headers: list[tuple[bytes, bytes]], path: str = "/ws/v1/live"
) -> AsyncIterator[ApplicationCommunicator]:
    """A socket that has been accepted."""
    scope = {"type": "websocket", "path": path, "headers": headers, "query_string": b""}
    socket = ApplicationCommunicator(websocket, scope)
    await socket.send_input({"type": "websocket.connect"})
    assert (await socket.receive_output(5))["type"] == "websocket.accept"
    try:
        yield socket
    finally:
        await socket.send_input({"type": "websocket.disconnect", "code": 1000})
        await socket.wait(5)


async def say(socket: ApplicationCommunicator, **command: Any) -> None:
    await send_text(socket, json.dumps(command))


async def send_text(socket: ApplicationCommunicator, text: str) -> None:
    await socket.send_input({"type": "websocket.receive", "text": text})


async def hear(socket: ApplicationCommunicator, op: str, timeout: float = 5) -> dict[str, Any]:
    """The next message of this kind; others before it are skipped."""
    async with asyncio.timeout(timeout):
        while True:
            message = await socket.receive_output(timeout)
            assert message["type"] == "websocket.send", message
            data = json.loads(message["text"])
            if data["op"] == op:
                return data


async def close_code(socket: ApplicationCommunicator, timeout: float = 5) -> int:
    """The code with which the server closes."""
    async with asyncio.timeout(timeout):
        while True:
            message = await socket.receive_output(timeout)
            if message["type"] == "websocket.close":
                return message["code"]
