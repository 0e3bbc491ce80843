"""A body that is too large is refused before it is stored, announced or not."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from jobs.api.body_limit import BodyLimit

LIMIT = 2**20


async def _reads_all(scope: dict[str, Any], receive: Any, send: Any) -> None:
    """An application like Django's: the whole body first, nothing if the client goes away."""
    size = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            return
        size += len(message["body"])
        if not message.get("more_body"):
            break
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": str(size).encode()})


def call(pieces: list[bytes], headers: list[tuple[bytes, bytes]]) -> tuple[int, bytes, int]:
    """(status, body, pieces taken) of a request that sends these pieces."""
    sent: list[dict[str, Any]] = []
    taken = 0

    async def receive() -> dict[str, Any]:
        nonlocal taken
        taken += 1
        more = taken < len(pieces)
        return {"type": "http.request", "body": pieces[taken - 1], "more_body": more}

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    scope = {"type": "http", "headers": headers}
    asyncio.run(BodyLimit(_reads_all, LIMIT)(scope, receive, send))
    return sent[0]["status"], sent[1]["body"], taken


def test_a_body_up_to_the_limit_passes() -> None:
    pieces = [b"x" * (LIMIT // 2)] * 2
    length = [(b"content-length", str(LIMIT).encode())]
    assert call(pieces, length) == (200, str(LIMIT).encode(), 2)
    assert call(pieces, []) == (200, str(LIMIT).encode(), 2)


def test_an_announced_length_above_it_is_refused_unread() -> None:
    length = [(b"content-length", str(LIMIT + 1).encode())]
    status, body, taken = call([b"x"], length)
    assert (status, taken) == (413, 0)
    assert json.loads(body)["code"] == "too_large"


def test_a_body_without_a_length_is_cut_off_once_it_is_above() -> None:
    status, body, taken = call([b"x" * (LIMIT // 2)] * 100, [])
    assert (status, taken) == (413, 3)
    assert json.loads(body)["message"] == "A request may have at most 1 MiB."


def test_a_length_that_is_no_number_is_left_to_the_server() -> None:
    assert call([b"x"], [(b"content-length", b"-1")])[0] == 200
