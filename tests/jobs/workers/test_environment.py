"""A trajectory is answered: it goes back for another turn, or ends and joins its group."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from django.utils import timezone

from engine.environments import retry
from engine.models.chat import ChatTokenizer
from engine.rewards import Services, grader_digest, parse_graders
from engine.types import Trajectory, Turn, pack_floats, pack_ids, unpack_ids
from jobs.models import BaseModel, Task, Worker
from jobs.services import dispatch, groups, heartbeats, joins
from jobs.services.payloads import pack_trajectory, unpack_trajectory
from jobs.services.secrets import save_secret
from jobs.workers import environment, hosting, services
from tests.jobs.trajectories import trajectory
from tests.tiny import build_tiny_model

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("redis")]
PROMPT = [5, 6]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_tiny_model(tmp_path_factory.mktemp("model"))


@pytest.fixture
def host(monkeypatch: pytest.MonkeyPatch) -> Iterator[environment.EnvironmentHost]:
    """Of two episodes at once."""
    monkeypatch.setattr(hosting, "_heartbeat", SimpleNamespace(incarnation="e"))
    host = environment.EnvironmentHost(2)
    monkeypatch.setattr(environment, "_host", host)
    yield host
    host.stop_taking()
    host.hand_back()


@pytest.fixture
def made(
    model: Path, task: Task, host: Any, monkeypatch: pytest.MonkeyPatch
) -> Callable[[str], Trajectory]:
    """Trajectories of `task` after one turn by the worker r1, all at work in this process."""
    BaseModel.objects.update(path=str(model))
    _set_environment("retry")
    monkeypatch.setattr(heartbeats, "_names", (0.0, frozenset()))
    joins.open_attempt("g", 1, 2, "queue:environment")

    def make(answer: str) -> Trajectory:
        ids = ChatTokenizer(model)._tokenizer.encode(answer, add_special_tokens=False).ids
        turn = Turn(2, 2 + len(ids), "d0", "stop", 1.0, 2.0, worker="r1")
        return replace(
            trajectory("g"),
            key=replace(trajectory("g").key, task=str(task.pk)),
            ids=pack_ids([*PROMPT, *ids]),
            logprobs=pack_floats([-1.0] * len(ids)),
            mask=b"\x01" * len(ids),
            turns=(turn,),
            reward=None,
            rewards={},
            text="",
        )

    return make


def _worker(name: str, silence_s: float = 0.0) -> None:
    Worker.objects.create(
        name=name,
        kind="rollout",
        host="here",
        pid=1,
        base_models=["tiny"],
        last_beat_at=timezone.now() - timedelta(seconds=silence_s),
    )


def _message(item: Trajectory, **fields: Any) -> dict[str, Any]:
    episode = {
        "row": {"answer": "12"},
        "base_model": "tiny",
        "adapter": "k0",
        "has_turns": True,
        "max_new_tokens": 300,
        "max_turns": 3,
        "temperature": 1.0,
    }
    return dispatch.turn_message(item, 7, {**episode, **fields})


def _set_environment(kind: str) -> None:
    config = Task.objects.get().config
    Task.objects.update(config={**config, "environment": {"type": kind}})


def _interact(message: dict[str, Any]) -> None:
    environment.interact(message)
    environment.host().wait(10)


def _sent(queue: str) -> list[tuple[str, dict[str, Any]]]:
    return list(dispatch.take_all(queue))


def _joined() -> Trajectory:
    (found,) = joins.collect("g", 1)
    return found


@pytest.mark.parametrize(
    ("silence_s", "queue"),
    [(0.0, "rollout.tiny.r1"), (11.0, "rollout.tiny"), (None, "rollout.tiny")],
)
def test_a_wrong_answer_goes_back_to_the_worker_that_gave_it_while_it_lives(
    made: Callable[[str], Trajectory], silence_s: float | None, queue: str
) -> None:
    if silence_s is not None:
        _worker("r1", silence_s)
    item = made("It is 13<|im_end|>")
    _interact(_message(item))
    ((name, message),) = _sent(queue)
    assert name == "rollout.resume"
    back = unpack_trajectory(message["trajectory"])
    added = back.num_tokens - item.num_tokens
    assert back.ids[: len(item.ids)] == item.ids  # what was generated stands as it came
    assert list(back.mask) == [1] * len(item.mask) + [0] * added
    assert len(back.logprobs) == 4 * len(back.mask)
    assert back.turns[0].observation == retry.WRONG
    _, context = services.read_settings(item.key.task, "tiny", lambda _: Services())
    text = context.chat.decode(unpack_ids(back.ids)[-added:])
    assert text == f"\nuser\n{retry.WRONG}\nassistant\n"
    assert message == {**_message(back), "trajectory": message["trajectory"]}
    assert [w.place for w in joins.whereabouts([("g", 1)])[0]][-1] == f"queue:{queue}"


def test_a_right_answer_is_graded_and_joins_its_group(made: Callable[[str], Trajectory]) -> None:
    _interact(_message(made("It is 12<|im_end|>")))
    assert (_joined().reward, _joined().text, _joined().stop_reason) == (1.0, "It is 12", "stop")
    assert _joined().graders_digest == grader_digest(parse_graders(Task.objects.get().graders))


def test_episodes_have_the_secrets_that_their_task_names_and_no_others(
    made: Callable[[str], Trajectory], task: Task, alice: Any, umbrella: Any, mallory: Any
) -> None:
    for name in ("mine", "unnamed"):
        save_secret(tenant=task.tenant, user=alice, name=name, host="a.example", value="s3cret")
    for name in ("mine", "theirs"):
        save_secret(tenant=umbrella, user=mallory, name=name, host="b.example", value="other")
    remote = {"type": "remote", "url": "https://a.example/"}
    named = [{**remote, "name": name, "secret": name} for name in ("mine", "theirs")]
    Task.objects.update(graders=[*task.graders, *named])
    _, context = services.read_settings(str(task.pk), "tiny", lambda _: Services())
    found = context.services.secrets
    assert {name: (one.host, one.value) for name, one in found.items()} == {
        "mine": ("a.example", "s3cret")
    }


def test_only_the_last_answer_is_rewarded_and_the_whole_text_is_kept(
    made: Callable[[str], Trajectory],
) -> None:
    _interact(_message(made("It is 12? No, 13<|im_end|>")))
    ((_, message),) = _sent("rollout.tiny")
    first = unpack_trajectory(message["trajectory"])
    ids = unpack_ids(made("14<|im_end|>").ids)[2:]
    start = first.num_tokens
    turn = Turn(start, start + len(ids), "d0", "stop", 3.0, 4.0, worker="r2")
    second = replace(
        first,
        ids=first.ids + pack_ids(ids),
        logprobs=first.logprobs + pack_floats([-1.0] * len(ids)),
        mask=first.mask + b"\x01" * len(ids),
        turns=(*first.turns, turn),
    )
    _interact({**message, "trajectory": pack_trajectory(second), "max_turns": 2})
    assert (_joined().reward, _joined().stop_reason) == (0.0, "turns")
    assert _joined().text.startswith("It is 12? No, 13\nuser\n")
    assert _joined().text.endswith("\n14")


@pytest.mark.parametrize(
    ("limits", "reason"), [({"max_turns": 1}, "turns"), ({"max_new_tokens": 40}, "length")]
)
def test_a_wrong_answer_without_turns_or_tokens_left_is_graded(
    made: Callable[[str], Trajectory], limits: dict[str, int], reason: str
) -> None:
    _interact(_message(made("It is 13<|im_end|>"), **limits))
    assert (_joined().reward, _joined().stop_reason) == (0.0, reason)
    assert _sent("rollout.tiny") == []


def test_an_environment_that_fails_leaves_its_trajectory_ungraded_with_the_reason(
    made: Callable[[str], Trajectory], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(*_: Any) -> None:
        raise RuntimeError("the tool is down")

    monkeypatch.setattr(retry.Retry, "answer", fail)
    _interact(_message(made("13<|im_end|>")))
    assert (_joined().reward, _joined().stop_reason) == (None, "error")
    assert "RuntimeError" in _joined().error


def test_a_trajectory_of_a_dead_attempt_is_sent_nowhere(
    made: Callable[[str], Trajectory], monkeypatch: pytest.MonkeyPatch
) -> None:
    late: list[str] = []
    monkeypatch.setattr(groups, "count_late", late.append)
    joins.forget("g", 1)
    _interact(_message(made("13<|im_end|>")))
    assert _sent("rollout.tiny") == []
    assert late == ["g"]


class Waiting:
    """Stands in for a tool that never answers."""

    def __init__(self) -> None:
        self.begun = threading.Event()
        self.cancelled = threading.Event()

    async def __call__(self, *_: Any) -> Any:
        self.begun.set()
        try:
            await asyncio.sleep(60)
        finally:
            self.cancelled.set()


@pytest.fixture
def tool(monkeypatch: pytest.MonkeyPatch) -> Waiting:
    tool = Waiting()
    monkeypatch.setattr(retry.Retry, "answer", lambda self, *rest: tool(*rest))
    return tool


def test_one_that_waits_holds_nobody_else(
    made: Callable[[str], Trajectory], tool: Waiting, host: environment.EnvironmentHost
) -> None:
    environment.interact(_message(made("13<|im_end|>")))
    assert tool.begun.wait(5)
    other = made("12<|im_end|>")
    _set_environment("single_turn")
    host.forget_settings()
    other = replace(other, key=replace(other.key, index=1))
    environment.interact(_message(other))
    while not joins.collect("g", 1):
        time.sleep(0.01)
    assert _joined().key.index == 1
    assert not tool.cancelled.is_set()


def test_a_long_wait_is_told_with_what_it_is_for_and_since_when_once(
    made: Callable[[str], Trajectory],
    tool: Waiting,
    host: environment.EnvironmentHost,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(environment, "TOLD_AFTER_S", 0.0)
    before = time.time()
    environment.interact(_message(made("13<|im_end|>")))
    assert tool.begun.wait(5)
    host._tell_long_waits()
    (place,) = [place for place in joins.places([("g", 1)]) if place.place == "worker:e"]
    assert place.what == "environment"
    assert before - 0.001 <= place.what_since <= time.time()
    told: list[joins.Wait] = []
    monkeypatch.setattr(joins, "note_waits", told.extend)
    host._tell_long_waits()
    assert told == []


def test_what_nobody_wants_any_more_is_cancelled_where_it_waits(
    made: Callable[[str], Trajectory], tool: Waiting, host: environment.EnvironmentHost
) -> None:
    environment.interact(_message(made("13<|im_end|>")))
    assert tool.begun.wait(5)
    joins.forget("g", 1)
    assert tool.cancelled.wait(5)
    host.wait(5)
    assert _sent("environment") == []


def test_what_waits_goes_back_to_the_queue_when_the_worker_leaves(
    made: Callable[[str], Trajectory], tool: Waiting, host: environment.EnvironmentHost
) -> None:
    message = _message(made("13<|im_end|>"))
    environment.interact(message)
    assert tool.begun.wait(5)
    host.stop_taking()
    late = made("14<|im_end|>")
    environment.interact(_message(replace(late, key=replace(late.key, index=1))))
    host.hand_back()
    assert tool.cancelled.is_set()
    sent = {back["trajectory"]["key"]["index"]: back for _, back in _sent("environment")}
    assert sorted(sent) == [0, 1]
    assert unpack_trajectory(sent[0]["trajectory"]) == unpack_trajectory(message["trajectory"])
    assert {**sent[0], "trajectory": 0} == {**message, "trajectory": 0}
    places = [where.place for where in joins.whereabouts([("g", 1)])[0]]
    assert places == ["queue:environment"]


def test_a_full_worker_takes_no_more(
    made: Callable[[str], Trajectory],
    tool: Waiting,
    host: environment.EnvironmentHost,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(groups, "count_late", lambda group: None)
    joins.open_attempt("g", 1, 3, "queue:environment")
    items = [made("13<|im_end|>") for _ in range(3)]
    messages = [
        _message(replace(item, key=replace(item.key, index=index)))
        for index, item in enumerate(items)
    ]
    for message in messages[:2]:
        environment.interact(message)
    third = threading.Thread(target=environment.interact, args=(messages[2],))
    third.start()
    third.join(0.3)
    assert third.is_alive()
    assert host.stats() == {"episodes": 2}
    joins.forget("g", 1)  # the first two are cancelled, and make room
    third.join(10)
    assert not third.is_alive()


def test_one_that_is_cancelled_before_it_began_makes_room(
    made: Callable[[str], Trajectory], host: environment.EnvironmentHost
) -> None:
    begun, may_go_on = threading.Event(), threading.Event()

    def block() -> None:
        begun.set()
        may_go_on.wait(5)

    host._loop.call_soon_threadsafe(block)
    assert begun.wait(5)
    for _ in range(5):  # more than there is room for
        environment.interact(_message(made("13<|im_end|>")))
        (held,) = host._held.values()
        assert held.cancel()
        assert host.stats() == {"episodes": 0}
    may_go_on.set()
    host.wait(5)
