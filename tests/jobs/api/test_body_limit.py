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


def _send_large(
    limited: BodyLimit, person: str, pieces: list[bytes], headers: list[tuple[bytes, bytes]]
) -> Any:
    """A coroutine: (status, body) of a request of somebody to the path that takes more."""
    sent: list[dict[str, Any]] = []
    left = list(pieces)

    async def receive() -> dict[str, Any]:
        await asyncio.sleep(0.01)
        return {"type": "http.request", "body": left.pop(0), "more_body": bool(left)}

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    async def run() -> tuple[int, bytes]:
        scope = {"type": "http", "path": "/up", "headers": headers, "person": person}
        await limited(scope, receive, send)
        return sent[0]["status"], sent[1]["body"]

    return run()


async def _who(scope: dict[str, Any]) -> str:
    return scope["person"]


def test_large_bodies_are_taken_from_known_people_and_few_at_once() -> None:
    limited = BodyLimit(_reads_all, LIMIT, {"/up": 8 * LIMIT}, _who)
    pieces = [b"x" * LIMIT] * 4
    length = [(b"content-length", str(4 * LIMIT).encode())]

    async def story() -> list[Any]:
        alone = [await _send_large(limited, person, pieces, length) for person in ("alice", "")]
        at_once = await asyncio.gather(
            *(_send_large(limited, person, pieces, length) for person in ["alice"] * 3 + ["bob"])
        )
        return [*alone, *at_once, await _send_large(limited, "alice", pieces, length)]

    statuses = [status for status, _ in asyncio.run(story())]
    assert statuses == [200, 401, 200, 200, 429, 200, 200]
    assert not limited._sending


def test_a_large_body_of_no_stated_length_is_asked_who_sends_it() -> None:
    limited = BodyLimit(_reads_all, LIMIT, {"/up": 8 * LIMIT}, _who)
    pieces, chunked = [b"x" * LIMIT] * 4, [(b"transfer-encoding", b"chunked")]
    assert asyncio.run(_send_large(limited, "alice", pieces, chunked))[0] == 200
    assert asyncio.run(_send_large(limited, "", pieces, chunked))[0] == 401
    assert asyncio.run(_send_large(limited, "", pieces, []))[0] == 413  # it lied by saying nothing


@pytest.mark.django_db(transaction=True)
def test_a_person_is_known_by_token_or_session(alice: Any) -> None:
    from django.conf import settings
    from django.test import Client
    from knox.models import AuthToken

    from jobs.api.signed_in import person_of

    client = Client()
    client.force_login(alice)
    name = settings.SESSION_COOKIE_NAME
    cookie = f"a=b; {name}={client.cookies[name].value}".encode()
    _, token = AuthToken.objects.create(user=alice)
    headers = {
        "session": (b"cookie", cookie),
        "token": (b"authorization", f"Token {token}".encode()),
        "neither": (b"cookie", f"{name}=x".encode()),
        "nonsense": (b"cookie", b"\xff=;;="),
        "wrong": (b"authorization", b"Token mls_x"),
        "half": (b"authorization", b"Token"),
    }
    found = {key: asyncio.run(person_of({"headers": [one]})) for key, one in headers.items()}
    known = str(alice.pk)
    assert found == {**dict.fromkeys(headers, ""), "session": known, "token": known}
