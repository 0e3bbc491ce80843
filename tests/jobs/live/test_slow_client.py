"""Against the real server: a client that stops reading is dropped, and holds up nobody else."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from django.db import transaction
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection, connect

from jobs.services import events
from jobs.services.events import Event
from tests.browser.conftest import server  # noqa: F401 - a fixture

from .sockets import session_headers

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.slow]

NUM_EVENTS = 60
TEXT = "x" * 250_000  # so that no kernel buffer holds all of them


def _connect(url: str, user: Any) -> ClientConnection:
    cookie = dict(session_headers(user))[b"cookie"].decode()
    origin: Any = url
    return connect(
        f"{url.replace('http', 'ws', 1)}/ws/v1/live",
        origin=origin,
        additional_headers={"Cookie": cookie},
        max_size=None,
        max_queue=1,
        compression=None,
    )


def _subscribe(client: ClientConnection, stream: str) -> None:
    epoch, seq = events.position(stream)
    client.send(json.dumps({"op": "sub", "stream": stream, "epoch": epoch, "since": seq}))


def test_a_tab_that_stops_reading_is_dropped_and_the_other_is_not_behind(
    server: str,  # noqa: F811
    redis: Any,
    alice: Any,
    bob: Any,
    task: Any,
) -> None:
    with _connect(server, bob) as stuck, _connect(server, alice) as other:
        for client in (stuck, other):
            _subscribe(client, task.stream)
        assert json.loads(other.recv(timeout=5))["op"] == "ok"
        delays, last = [], 0
        while last < NUM_EVENTS:
            with transaction.atomic():
                events.record([Event(task.stream, "log", {"text": TEXT, "at": time.time()})])
            last = _read_one(other, last, delays)
        assert sorted(delays)[len(delays) // 2] < 1.0
        time.sleep(11)  # longer than the server waits for a client to take a message
        with pytest.raises(ConnectionClosed):
            for _ in range(NUM_EVENTS):
                stuck.recv(timeout=5)


def _read_one(client: ClientConnection, last: int, delays: list[float]) -> int:
    """Read the next events; they must follow on. Returns the new position."""
    while True:
        message = json.loads(client.recv(timeout=10))
        if message["op"] == "ev":
            assert message["from"] == last + 1
            delays += [time.time() - item["data"]["at"] for item in message["items"]]
            return message["to"]
