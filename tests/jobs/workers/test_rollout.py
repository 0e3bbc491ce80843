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

from engine.environments import Reply
from engine.environments.episode import with_observation
from engine.prompt_order import turn_seed
from engine.types import Generation, GenerationRequest, pack_ids
from jobs import artifacts
from jobs.models import Worker
from jobs.services import dispatch, groups, joins
from jobs.services.payloads import pack_trajectory, unpack_trajectory
from jobs.workers import hosting, rollout
from tests.jobs.trajectories import trajectory

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("redis")]


class Engine:
    """Stands in for EngineThread: keeps requests, ends none by itself."""

    def __init__(self, on_done: Callable[[list[Generation]], None]) -> None:
        self.on_done = on_done
        self.requests: list[GenerationRequest] = []
        self.cancelled: list[str] = []
        self.forgotten: list[str] = []
        self.error: Exception | None = None
        self.is_alive = True

    def submit(self, requests: Sequence[GenerationRequest]) -> bool:
        if self.error:
            raise self.error
        self.requests += requests
        return True

    def cancel(self, ids: Iterable[str]) -> None:
        self.cancelled += ids

    def forget(self, sessions: Iterable[str]) -> None:
        self.forgotten += sessions

    def close(self) -> None:
        """It has no thread."""

    def join(self) -> None:
        """It has no thread."""


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
        "max_new_tokens": 8,
        "max_turns": 3,
        "temperature": 1.0,
        "has_turns": False,
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

    def send(held: Any, generation: Generation) -> None:
        if held.trajectory.key.index == 0:
            raise OSError("away")
        sent.append(held.trajectory.key.index)

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


def _sent(queue: str) -> list[dict[str, Any]]:
    return [message for _, message in dispatch.take_all(queue)]


def _wait_sent(queue: str, count: int) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    deadline = time.monotonic() + 10
    while len(found) < count and time.monotonic() < deadline:
        found += _sent(queue)
        time.sleep(0.01)
    return found


def _generated(index: int = 0, reason: str = "stop", ids: tuple[int, ...] = (3, 0)) -> Generation:
    return Generation(f"g:1:{index}", ids, (-1.0,) * len(ids), reason, "d0")


def _answered(host: Any) -> dict[str, Any]:
    """Trajectory 0 after a turn of two tokens and an answer of two, on its way back."""
    rollout.generate(_message(has_turns=True))
    host.engine.on_done([_generated()])
    (message,) = _wait_sent("environment", 1)
    trajectory = unpack_trajectory(message["trajectory"])
    reply = Reply(is_over=False, observation="no", observation_ids=(5, 6))
    return {**message, "trajectory": pack_trajectory(with_observation(trajectory, reply))}


@pytest.mark.usefixtures("adapter")
def test_a_later_turn_continues_the_trajectory_in_its_session(host: Any) -> None:
    rollout.resume(_answered(host))
    first, _, later = host.engine.requests
    assert first.session == later.session == later.id == "g:1:0"
    assert later.ids == (1, 2, 3, 0, 5, 6)
    assert (first.sampling.max_new_tokens, later.sampling.max_new_tokens) == (8, 4)
    assert (first.seed, later.seed) == (7, turn_seed(7, 1))
    host.engine.on_done([_generated(ids=(4,), reason="length")])
    (message,) = _wait_sent("environment", 1)
    made = unpack_trajectory(message["trajectory"])
    assert list(made.mask) == [1, 1, 0, 0, 1]
    assert [(turn.start, turn.end) for turn in made.turns] == [(2, 4), (6, 7)]
    assert (message["seed"], message["max_turns"], made.stop_reason) == (7, 3, "length")
    assert host.engine.forgotten == ["g:1:0"]  # it was cut off: no further turn


@pytest.mark.usefixtures("adapter")
def test_an_episode_of_one_turn_keeps_no_kv(host: Any) -> None:
    rollout.generate(_message())
    assert {request.session for request in host.engine.requests} == {""}


@pytest.mark.usefixtures("adapter")
def test_kv_is_kept_until_the_episode_has_ended_elsewhere(host: Any) -> None:
    _answered(host)
    host._look_for_stale()
    assert host.engine.forgotten == []
    joins.join(trajectory("g"))
    host._look_for_stale()
    assert host.engine.forgotten == ["g:1:0"]


@pytest.mark.usefixtures("adapter")
def test_a_dead_attempt_is_cancelled_and_its_kv_is_forgotten(host: Any) -> None:
    _answered(host)
    joins.forget("g", 1)
    host._look_for_stale()
    assert host.engine.cancelled == ["g:1:1"]
    assert set(host.engine.forgotten) == {"g:1:0", "g:1:1"}


@pytest.mark.usefixtures("adapter")
def test_a_worker_that_leaves_hands_back_what_it_holds_and_what_waits_for_it(
    host: Any, settings: Any
) -> None:
    """Trajectory 0 waits in its own queue for a later turn, 1 is in the engine for its first."""
    settings.WORKER_BASE_MODELS, settings.WORKER_NAME = ["tiny"], "r1"
    later = _answered(host)
    joins.move("g", 1, [0], "queue:rollout.tiny.r1")
    dispatch.send("rollout.resume", "rollout.tiny.r1", later)
    host.stop_taking()
    host.hand_back()
    back = {"prompt" in message: message for message in _wait_sent("rollout.tiny", 2)}
    assert (back[True]["indexes"], back[True]["seeds"]) == ([1], [8])
    taken = unpack_trajectory(back[False]["trajectory"])
    assert taken == unpack_trajectory(later["trajectory"])
    assert back[False] == {**later, "trajectory": back[False]["trajectory"]}
    assert [w.place for w in joins.whereabouts([("g", 1)])[0]] == ["queue:rollout.tiny"]
    assert _sent("rollout.tiny.r1") == []


@pytest.mark.usefixtures("adapter")
def test_a_later_turn_of_a_dead_attempt_is_dropped_and_counted(
    host: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    late: list[str] = []
    monkeypatch.setattr(groups, "count_late", late.append)
    message = _answered(host)
    joins.forget("g", 1)
    rollout.resume(message)
    assert (len(host.engine.requests), late) == (2, ["g"])
