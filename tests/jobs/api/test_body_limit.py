"""A body that is too large is refused before it is stored, announced or not."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from jobs.api import body_limit
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


def _call_slowly(wait_s: float, num_pieces: int) -> tuple[int, dict[str, str]]:
    """(status, answer) of a request whose pieces come that far apart."""
    sent: list[dict[str, Any]] = []
    taken = 0

    async def receive() -> dict[str, Any]:
        nonlocal taken
        await asyncio.sleep(wait_s)
        taken += 1
        return {"type": "http.request", "body": b"x", "more_body": taken < num_pieces}

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    scope = {"type": "http", "headers": []}
    asyncio.run(BodyLimit(_reads_all, LIMIT)(scope, receive, send))
    return sent[0]["status"], json.loads(sent[1]["body"])


def test_a_body_that_stops_coming_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(body_limit, "STALL_S", 0.05)
    status, answer = _call_slowly(wait_s=60, num_pieces=2)
    assert (status, answer["code"]) == (408, "too_slow")


def test_a_body_that_drips_is_given_up_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(body_limit, "BODY_S", 0.3)
    status, answer = _call_slowly(wait_s=0.01, num_pieces=10**6)
    assert (status, answer["code"]) == (408, "too_slow")


def test_waiting_for_the_client_to_leave_has_no_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Applications listen on after the body, to notice that the client has gone."""
    monkeypatch.setattr(body_limit, "STALL_S", 0.01)
    sent: list[dict[str, Any]] = []

    async def waits_for_the_end(scope: Any, receive: Any, send: Any) -> None:
        assert (await receive())["type"] == "http.request"
        assert (await receive())["type"] == "http.disconnect"
        await send({"type": "http.response.start", "status": 200, "headers": []})

    messages = [(0.0, {"type": "http.request", "body": b"x"}), (0.1, {"type": "http.disconnect"})]

    async def receive() -> dict[str, Any]:
        wait_s, message = messages.pop(0)
        await asyncio.sleep(wait_s)
        return message

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    scope = {"type": "http", "headers": []}
    asyncio.run(BodyLimit(waits_for_the_end, LIMIT)(scope, receive, send))
    assert sent[0]["status"] == 200


def test_only_the_paths_of_uploads_take_large_bodies() -> None:
    from marlaas_site.asgi import MAX_BODY_BYTES, MAX_UPLOAD_BYTES, limited

    async def answer(path: str, length: int) -> int:
        sent: list[dict[str, Any]] = []

        async def send(message: dict[str, Any]) -> None:
            sent.append(message)

        async def app(scope: Any, receive: Any, send: Any) -> None:
            await send({"type": "http.response.start", "status": 200, "headers": []})

        headers = [(b"content-length", str(length).encode())]
        scope = {"type": "http", "path": path, "headers": headers}
        await BodyLimit(app, limited.limit, limited.larger)(scope, None, send)  # type: ignore[arg-type]
        return sent[0]["status"]

    for path in ("/datasets/", "/api/v1/datasets"):
        assert asyncio.run(answer(path, MAX_UPLOAD_BYTES)) == 200
        assert asyncio.run(answer(path, MAX_UPLOAD_BYTES + 1)) == 413
    for path in ("/", "/accounts/login/", "/api/v1/tasks", "/datasets/x/"):
        assert asyncio.run(answer(path, MAX_BODY_BYTES)) == 200
        assert asyncio.run(answer(path, MAX_BODY_BYTES + 1)) == 413
