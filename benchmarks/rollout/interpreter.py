"""Section "interpreter": does the engine need a process of its own?

The engine runs in its thread, as in a worker, while messages of 1,000 tokens are published to and
consumed from a real Redis by Celery: by threads of the same process, by another process, or not at
all. Windows of the three alternate.
"""

from __future__ import annotations

import contextlib
import random
import socket
import statistics
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from typing import Any

from benchmarks.report import Row
from jobs.stack.redis_server import redis_command

from .bench import Bench
from .workload import random_ids

MESSAGES_PER_S, MESSAGE_TOKENS = 100, 1000
ROUNDS, WINDOW_S = 6, 4.0
NEW_TOKENS = 96
CONSUMERS = 4  # threads

_held: dict[str, Any] = {}


def measure(bench: Bench) -> list[Row]:
    size, rounds = (32, 2) if bench.is_quick else (128, ROUNDS)
    found: dict[str, list[float]] = {"none": [], "same process": [], "another process": []}
    with _redis() as url, bench.ours() as ours, bench.other("traffic") as other:
        other.is_companion = True
        ours.call("interpreter.host", size=size)
        for worker, queue in ((ours, "same"), (other, "other")):
            worker.call("interpreter.connect", url=url, queue=queue)
        messages = {}
        for _ in range(rounds):
            for name, speeds in found.items():
                flowing = {"same process": ours, "another process": other}.get(name)
                if flowing:
                    flowing.call("interpreter.flow", is_on=True)
                speeds.append(ours.call("interpreter.window", seconds=WINDOW_S))
                if flowing:
                    messages[name] = flowing.call("interpreter.flow", is_on=False)
                bench.say(f"  messages in {name}: {speeds[-1]:,.0f} tokens/s")
    bench.notes["messages_per_s"] = messages
    middle = {name: statistics.median(speeds) for name, speeds in found.items()}
    quiet = middle["none"]
    return [
        *(Row(f"messages in {name}", speed, "tokens/s") for name, speed in middle.items()),
        *(
            Row(f"lost to messages in {name}", 100 * (1 - middle[name] / quiet), "%")
            for name in ("same process", "another process")
        ),
    ]


@contextlib.contextmanager
def _redis() -> Iterator[str]:
    with socket.socket() as free, tempfile.TemporaryDirectory() as directory:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
        free.close()
        server = subprocess.Popen(redis_command(port, directory), stdout=subprocess.DEVNULL)
        try:
            yield f"redis://127.0.0.1:{port}/0"
        finally:
            server.terminate()
            server.wait()


def host(size: int) -> None:
    """In the engine's child: a thread that always has `size` sequences."""
    from engine.rollout.service import EngineThread

    from . import ours

    rng, refs = random.Random(13), ours.adapters(32)

    def more(count: int) -> list[Any]:
        return [
            ours.request(
                refs[rng.randrange(32)], random_ids(rng, 24, ours.vocabulary()), NEW_TOKENS
            )
            for _ in range(count)
        ]

    def again(done: list[Any]) -> None:
        # `submit` waits for room, and the engine's thread is the one that makes it.
        threading.Thread(target=thread.submit, args=[more(len(done))], daemon=True).start()

    thread = EngineThread(lambda: ours.engine(size, 256), again)
    _held["engine"] = thread
    thread.submit(more(size))
    time.sleep(WINDOW_S)


def window(seconds: float) -> float:
    """In the engine's child: its tokens per second meanwhile."""
    thread = _held["engine"]
    before, start = thread.stats().tokens_generated, time.perf_counter()
    time.sleep(seconds)
    return (thread.stats().tokens_generated - before) / (time.perf_counter() - start)


def connect(url: str, queue: str) -> None:
    """In either child: a Celery worker and a publisher, both at rest."""
    from celery import Celery
    from celery.contrib.testing.worker import start_worker

    app = Celery("traffic", broker=url, set_as_current=False)
    app.conf.update(
        task_serializer="msgpack",
        accept_content=["msgpack"],
        task_ignore_result=True,
        task_default_queue=queue,
        worker_hijack_root_logger=False,
    )

    @app.task(name="traffic.take")
    def take(message: dict[str, Any]) -> None:
        """As the stages do: bytes to numbers and back."""
        from engine.types import pack_floats, pack_ids, unpack_floats, unpack_ids

        pack_ids(unpack_ids(message["ids"]))
        pack_floats(unpack_floats(message["logprobs"]))
        _held["taken"] += 1

    _held.update(app=app, queue=queue, taken=0, flowing=threading.Event())
    _held["worker"] = start_worker(
        app, pool="threads", concurrency=CONSUMERS, perform_ping_check=False, loglevel="WARNING"
    )
    _held["worker"].__enter__()
    threading.Thread(target=_publish, daemon=True).start()


def flow(is_on: bool) -> float:
    """In either child: begin, or end and say how many messages a second were consumed."""
    if is_on:
        _held.update(taken=0, since=time.perf_counter())
        _held["flowing"].set()
        return 0.0
    _held["flowing"].clear()
    return _held["taken"] / (time.perf_counter() - _held["since"])


def _publish() -> None:
    from engine.types import pack_floats, pack_ids

    message = {
        "ids": pack_ids(list(range(MESSAGE_TOKENS))),
        "logprobs": pack_floats([0.5] * MESSAGE_TOKENS),
        "mask": b"\x01" * MESSAGE_TOKENS,
    }
    due = 0.0
    while _held["flowing"].wait():
        due = max(due, time.perf_counter() - 0.1) + 1 / MESSAGES_PER_S
        time.sleep(max(0.0, due - time.perf_counter()))
        _held["app"].send_task("traffic.take", [message], queue=_held["queue"])
