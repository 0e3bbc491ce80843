"""Whatever is lost on the way, a client ends with exactly the rows: nothing missing or doubled."""

from __future__ import annotations

import asyncio
import json
import socket as sockets
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.db import connection
from hypothesis import HealthCheck, given, settings, strategies

from jobs.live import doorbell
from jobs.live import socket as live
from jobs.models import StreamEvent, StreamHead
from jobs.services import events
from jobs.stack.redis_server import redis_command

from .sockets import connected, hear, run, say, session_headers, write

pytestmark = pytest.mark.django_db(transaction=True)


class Client:
    """The page's reducer: applies what follows on, trims overlap, asks again at a gap or reset."""

    def __init__(self, stream: str) -> None:
        self.stream, self.epoch, self.seq = stream, "", 0
        self.values: list[int] = []
        self.num_doubled = 0

    def take_snapshot(self, rows: list[int]) -> None:
        """State as of a position; `rows` is what the table of the values holds now."""
        self.epoch, self.seq = events.position(self.stream)
        self.values = list(rows)

    def apply(self, message: dict[str, Any]) -> bool:
        """False if the client has to ask again from its position."""
        if message["epoch"] != self.epoch or message["from"] > self.seq + 1:
            return False
        self.num_doubled += max(0, self.seq + 1 - message["from"])
        for item in message["items"][self.seq + 1 - message["from"] :]:
            self.values.append(item["data"]["step"])
        self.seq = max(self.seq, message["to"])
        return True


@pytest.fixture
def own_redis(settings: Any) -> Iterator[Callable[[], subprocess.Popen[bytes]]]:
    """Starts, as often as asked, the Redis of this test's channel layer."""
    with sockets.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    settings.CHANNEL_LAYERS = {
        "default": {
            "BACKEND": "channels_redis.pubsub.RedisPubSubChannelLayer",
            "CONFIG": {"hosts": [f"redis://127.0.0.1:{port}/0"], "prefix": "gap"},
        }
    }
    started: list[subprocess.Popen[bytes]] = []

    def start() -> subprocess.Popen[bytes]:
        started.append(subprocess.Popen(redis_command(port, "/tmp"), stdout=subprocess.DEVNULL))
        for _ in range(200):
            with sockets.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.02)
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.wait()


def test_a_redis_killed_and_restarted_while_200_events_are_written_loses_none(
    alice: Any, task: Any, own_redis: Callable[[], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "HEARTBEAT_S", 1.0)
    server = own_redis()
    headers = session_headers(alice)
    page = Client(task.stream)
    page.take_snapshot([])

    def write_200() -> None:
        for value in range(200):
            write(task.stream, value)
            time.sleep(0.02)
        connection.close()

    def restart() -> None:
        time.sleep(1)
        server.kill()
        server.wait()
        time.sleep(1.5)
        own_redis()

    async def story() -> None:
        threads = [threading.Thread(target=work) for work in (write_200, restart)]
        async with connected(headers) as socket:
            await say(socket, op="sub", stream=task.stream, epoch=page.epoch, since=page.seq)
            for thread in threads:
                thread.start()
            while page.seq < 200:
                assert page.apply(await hear(socket, "ev", timeout=20))
            assert page.values == list(range(200))
            assert page.num_doubled == 0
            await sync_to_async(_join)(threads)
            monkeypatch.setattr(live, "HEARTBEAT_S", 3600.0)
            await asyncio.sleep(2.5)  # the last short heartbeat passes, the layer has reconnected
            await sync_to_async(write)(task.stream, 200)
            assert page.apply(await hear(socket, "ev", timeout=5))  # by a doorbell again

    run(story)


def _join(threads: list[threading.Thread]) -> None:
    for thread in threads:
        thread.join(timeout=30)


STEPS = strategies.lists(
    strategies.sampled_from(
        ["write", "write", "write silently", "ring again", "reconnect", "new epoch", "prune"]
    ),
    max_size=12,
)


@pytest.mark.usefixtures("redis")
def test_any_order_of_writes_losses_and_reconnects_ends_in_the_state_of_the_table(
    alice: Any, task: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "DRAIN_INTERVAL_S", 0.0)
    monkeypatch.setattr(live, "HEARTBEAT_S", 0.05)
    headers = session_headers(alice)
    ring = doorbell.ring

    rows: list[int] = []  # the table that a snapshot reads; events may be pruned, rows stay

    def add(*values: int) -> None:
        write(task.stream, *values)
        rows.extend(values)

    def happen(step: str, number: int) -> None:
        stream = task.stream
        monkeypatch.setattr(doorbell, "ring", ring if step == "write" else lambda *_: None)
        if step in ("write", "write silently"):
            add(number, number + 1000)
        elif step == "ring again":
            ring(stream, *events.position(stream))
        elif step == "new epoch":
            events.rewrite_history(stream)
        elif step == "prune":
            oldest = StreamEvent.objects.filter(stream=stream).order_by("seq").first()
            if oldest:
                oldest.delete()

    async def follow(page: Client, socket: Any, until: tuple[str, int]) -> None:
        """Read until the page is where the stream is."""
        while (page.epoch, page.seq) != until:
            message = json.loads((await socket.receive_output(5))["text"])
            if message["op"] == "ev" and page.apply(message):
                continue
            if message["op"] == "reset":
                await sync_to_async(page.take_snapshot)(rows)
            if message["op"] in ("ev", "reset"):
                await say(socket, op="sub", stream=page.stream, epoch=page.epoch, since=page.seq)

    @settings(
        max_examples=25,
        deadline=None,
        suppress_health_check=[HealthCheck.function_scoped_fixture],
    )
    @given(STEPS)
    def check(steps: list[str]) -> None:
        StreamEvent.objects.all().delete()
        StreamHead.objects.all().delete()
        rows.clear()
        add(-1, -2)
        page = Client(task.stream)
        page.take_snapshot(rows)

        async def story() -> None:
            rest = list(enumerate(steps))
            while True:
                async with connected(headers) as socket:
                    await say(
                        socket, op="sub", stream=page.stream, epoch=page.epoch, since=page.seq
                    )
                    while rest:
                        number, step = rest.pop(0)
                        if step == "reconnect":
                            break
                        await sync_to_async(happen)(step, number)
                    if not rest:
                        until = await sync_to_async(events.position)(task.stream)
                        await follow(page, socket, until)
                        return

        run(story)
        assert page.values == rows
        assert page.num_doubled == 0

    check()
