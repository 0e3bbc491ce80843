"""A rollout worker generates for checks beside its groups, and neither disturbs the other."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from engine.types import Generation
from jobs import artifacts
from jobs.services import dispatch, samples
from jobs.workers import hosting, rollout

from .test_rollout import Engine

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("redis")]
SOURCE = samples.Source("p1", "tiny", "d0", "adapters/check", 0.7)
WANTED = [samples.Wanted(f"0:{index}:0", (1, 2), 7 + index, 8) for index in range(2)]


@pytest.fixture
def host(monkeypatch: pytest.MonkeyPatch) -> Iterator[rollout.RolloutHost]:
    alive = SimpleNamespace(incarnation="inc", stop=lambda: None)
    monkeypatch.setattr(hosting, "_heartbeat", alive)
    host = rollout.RolloutHost(Engine, (0,))
    monkeypatch.setattr(rollout, "_host", host)
    yield host
    host._leaving.set()


@pytest.fixture
def message(redis: Any, tmp_path: Path) -> dict[str, Any]:
    """Of an open check that wants two sequences, as it comes out of the queue."""
    (tmp_path / "adapter.bin").write_bytes(b"x")
    artifacts.put_directory("adapters/check", tmp_path)
    samples.keep_open("p1")
    samples.ask(SOURCE, WANTED)
    ((name, message),) = dispatch.take_all("rollout.tiny")
    assert name == "rollout.sample"
    return message


def _answers() -> list[Generation]:
    found: list[Generation] = []
    deadline = time.monotonic() + 5
    while not found and time.monotonic() < deadline:
        found = list(samples.answers("p1", 0.05))
    return found


def test_sequences_go_into_the_engine_and_their_tokens_to_the_check(
    host: Any, message: dict[str, Any]
) -> None:
    rollout.sample(message)
    first, second = host.engine.requests
    assert (first.id, first.ids, first.seed) == ("sample:p1:0:0:0", (1, 2), 7)
    assert (first.adapter.digest, first.session) == ("d0", "")
    assert (first.sampling.temperature, first.sampling.max_new_tokens) == (0.7, 8)
    assert first.sampling.stop_ids == (0,)
    made = Generation(first.id, (3, 0), (-0.5, -0.25), "stop", "d0", 10.0, 11.0)
    host.engine.on_done([made])
    (answer,) = _answers()
    assert (answer.id, answer.ids, answer.logprobs) == ("0:0:0", (3, 0), (-0.5, -0.25))
    assert (answer.finish_reason, answer.started_at, answer.finished_at) == ("stop", 10.0, 11.0)
    assert host.is_whole
    assert second.seed == 8


def test_a_check_that_is_over_gets_nothing(host: Any, message: dict[str, Any]) -> None:
    samples.close("p1")
    rollout.sample(message)
    assert host.engine.requests == []


def test_what_is_asked_for_twice_is_generated_once(host: Any, message: dict[str, Any]) -> None:
    rollout.sample(message)
    rollout.sample(message)
    assert len(host.engine.requests) == 2


def test_an_adapter_that_is_gone_is_told_to_the_check(host: Any, message: dict[str, Any]) -> None:
    artifacts.delete("adapters/check")
    rollout.sample(message)
    assert host.engine.requests == []
    errors = [answer.error for answer in _answers()]
    assert errors == ["artifact adapters/check is not there"] * 2


def test_what_the_engine_refuses_may_be_asked_for_again(host: Any, message: dict[str, Any]) -> None:
    host.engine.error = ValueError("broken")
    with pytest.raises(ValueError, match="broken"):
        rollout.sample(message)
    host.engine.error = None
    rollout.sample(message)
    assert len(host.engine.requests) == 2


def test_a_worker_that_leaves_hands_sequences_back(
    host: Any, message: dict[str, Any], settings: Any
) -> None:
    settings.WORKER_BASE_MODELS, settings.WORKER_NAME = ["tiny"], "r1"
    rollout.sample(message)
    host.engine.on_done([Generation("sample:p1:0:0:0", (3,), (-1.0,), "stop", "d0")])
    assert len(_answers()) == 1
    host.stop_taking()
    host.hand_back()
    ((name, back),) = dispatch.take_all("rollout.tiny")
    assert name == "rollout.sample"
    assert [one["id"] for one in back["sequences"]] == ["0:1:0"]
