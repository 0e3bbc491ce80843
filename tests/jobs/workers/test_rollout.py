"""A rollout worker never seems to hold what it does not, and leaves when it cannot go on."""

import os
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from django.db import OperationalError, connection

from engine.types import Generation, GenerationRequest, pack_ids
from jobs import artifacts
from jobs.models import Worker
from jobs.services import joins
from jobs.workers import hosting, rollout

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("redis")]


class Engine:
    """Stands in for EngineThread: keeps requests, ends none by itself."""

    def __init__(self, on_done: Callable[[list[Generation]], None]) -> None:
        self.on_done = on_done
        self.requests: list[GenerationRequest] = []
        self.error: Exception | None = None
        self.is_alive = True

    def submit(self, requests: Sequence[GenerationRequest]) -> bool:
        if self.error:
            raise self.error
        self.requests += requests
        return True

    def cancel(self, ids: Iterable[str]) -> None:
        """Nothing to end."""


@pytest.fixture
def host(monkeypatch: pytest.MonkeyPatch) -> Iterator[rollout.RolloutHost]:
    alive = SimpleNamespace(incarnation="inc", stop=lambda: None)
    monkeypatch.setattr(hosting, "_heartbeat", alive)
    host = rollout.RolloutHost(Engine, (0,))
    monkeypatch.setattr(rollout, "_host", host)
    yield host
    host._leaving.set()


def _message(**fields: Any) -> dict[str, Any]:
    message = {
        "task": "t",
        "step": 0,
        "group": "g",
        "attempt": 1,
        "base_model": "tiny",
        "version": 0,
        "digest": "d0",
        "adapter": "adapters/0",
        "prompt": pack_ids([1, 2]),
        "row": {},
        "indexes": [0, 1],
        "seeds": [7, 8],
        "max_new_tokens": 3,
        "temperature": 1.0,
    }
    return {**message, **fields}


@pytest.fixture
def adapter(redis: Any, tmp_path: Any) -> None:
    (tmp_path / "adapter.bin").write_bytes(b"x")
    artifacts.put_directory("adapters/0", tmp_path)
    joins.open_attempt("g", 1, 2, "queue:rollout.tiny")


@pytest.mark.usefixtures("adapter")
def test_a_group_that_was_taken_is_held_here(host: Any) -> None:
    rollout.generate(_message())
    assert [request.id for request in host.engine.requests] == ["g:1:0", "g:1:1"]
    assert [where.place for where in joins.whereabouts([("g", 1)])[0]] == ["worker:inc"]


@pytest.mark.usefixtures("adapter")
@pytest.mark.parametrize("broken", [{"seeds": []}, {"prompt": b"123"}, {"temperature": None}])
def test_a_message_that_cannot_be_understood_is_not_held_for_ever(
    host: Any, broken: dict[str, Any]
) -> None:
    if "temperature" in broken:
        host.engine.error = ValueError("the engine refuses it")
    with pytest.raises((ValueError, IndexError)):
        rollout.generate(_message(**broken))
    assert joins.are_live([("g", 1)]) == [False]
    assert not host._held


@pytest.mark.usefixtures("adapter")
def test_an_attempt_whose_move_was_not_answered_is_not_held_for_ever(
    host: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    move = joins.move

    def unanswered(*arguments: Any) -> bool:
        move(*arguments)
        raise TimeoutError("no answer")

    monkeypatch.setattr(joins, "move", unanswered)
    with pytest.raises(TimeoutError):
        rollout.generate(_message())
    assert joins.are_live([("g", 1)]) == [False]


@pytest.mark.usefixtures("adapter")
def test_a_result_that_cannot_be_sent_is_given_up_and_the_next_is_sent(
    host: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[int] = []

    def send(message: dict[str, Any], index: int, generation: Generation) -> None:
        if index == 0:
            raise OSError("away")
        sent.append(index)

    monkeypatch.setattr(rollout, "_send_on", send)
    rollout.generate(_message())
    host.engine.on_done([Generation(id=f"g:1:{index}", ids=(3,)) for index in range(2)])
    deadline = time.monotonic() + 5
    while not sent and time.monotonic() < deadline:
        time.sleep(0.01)
    assert sent == [1]
    assert joins.are_live([("g", 1)]) == [False]
    assert host.is_whole


@pytest.mark.usefixtures("adapter")
def test_a_result_after_an_error_begins_with_a_database_connection_of_its_own(
    host: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    open_before: list[bool] = []

    def send(*_: Any) -> None:
        open_before.append(connection.connection is not None)
        Worker.objects.count()
        raise OperationalError("the connection is closed")

    monkeypatch.setattr(rollout, "_send_on", send)
    rollout.generate(_message())
    host.engine.on_done([Generation(id=f"g:1:{index}", ids=(3,)) for index in range(2)])
    deadline = time.monotonic() + 5
    while len(open_before) < 2 and time.monotonic() < deadline:
        time.sleep(0.01)
    assert open_before == [False, False]


def test_a_worker_that_lost_a_thread_leaves(host: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    signals: list[tuple[int, int]] = []
    monkeypatch.setattr(os, "kill", lambda pid, number: signals.append((pid, number)))
    rollout.tend("inc")
    assert signals == []
    ended = threading.Thread(target=int)
    ended.start()
    ended.join()
    host._threads[0] = ended
    rollout.tend("inc")
    assert signals == [(os.getpid(), signal.SIGTERM)]


def test_a_worker_whose_engine_ended_leaves(host: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    signals: list[int] = []
    monkeypatch.setattr(os, "kill", lambda pid, number: signals.append(number))
    host.engine.is_alive = False
    rollout.tend("inc")
    assert signals == [signal.SIGTERM]
    host._leaving.set()  # ends its engine itself
    rollout.tend("inc")
    assert signals == [signal.SIGTERM]
