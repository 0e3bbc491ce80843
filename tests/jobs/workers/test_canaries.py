"""A rollout worker checks what its engine serves, and no check harms a group."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from engine.adapters.canary import CANARY_FILE, Canary, write_canary
from engine.types import AdapterRef, Generation, GenerationRequest, pack_ids
from jobs import artifacts
from jobs.models import PolicyVersion
from jobs.services import joins, mismatch
from jobs.workers import canaries, hosting, rollout
from jobs.workers.canaries import CHECK_AGAIN_S, Canaries

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("redis")]

CANARY = Canary((5, 6, 7), (-1.0, -2.0), (-1.4, -2.8))


@pytest.fixture
def adapter(task: Any, tmp_path: Path) -> AdapterRef:
    """Version 1 of a running task, with a canary."""
    task.state = "running"
    task.save()
    PolicyVersion.objects.create(task=task, number=1, digest="d" * 64, key="k")
    write_canary(tmp_path, CANARY)
    return AdapterRef(str(task.pk), 1, "d" * 64, str(tmp_path))


@pytest.fixture
def clock() -> SimpleNamespace:
    return SimpleNamespace(now=0.0)


@pytest.fixture
def checks(clock: Any) -> Canaries:
    return Canaries(lambda: clock.now)


def _scored(request: GenerationRequest, logprobs: Sequence[float]) -> Generation:
    return Generation(
        request.id, (9,), (-0.1,), "length", request.adapter.digest, prompt_logprobs=(*logprobs,)
    )


def _canary(adapter: AdapterRef) -> dict[str, Any]:
    return PolicyVersion.objects.get(task=adapter.task, number=adapter.version).canary


def test_a_version_is_scored_when_first_seen_and_again_after_a_while(
    checks: Canaries, clock: Any, adapter: AdapterRef
) -> None:
    (request,) = checks.requests(adapter)
    assert request.ids == CANARY.ids
    assert request.adapter == adapter
    assert request.needs_prompt_logprobs
    assert (request.sampling.temperature, request.sampling.max_new_tokens) == (1.0, 1)
    clock.now = CHECK_AGAIN_S / 2
    assert checks.requests(adapter) == []
    clock.now = CHECK_AGAIN_S
    (again,) = checks.requests(adapter)
    assert again.id != request.id
    assert [*map(checks.take, [_scored(request, (-1.0, -2.0)), _scored(again, (-1.1, -2.1))])] == [
        True,
        True,
    ]
    assert _canary(adapter)["mean"] == pytest.approx(0.1)


def test_versions_are_checked_each_by_itself(
    checks: Canaries, adapter: AdapterRef, tmp_path: Path
) -> None:
    write_canary(tmp_path / "2", CANARY)
    other = AdapterRef(adapter.task, 2, "e" * 64, str(tmp_path / "2"))
    ids = {request.id for ref in (adapter, other) for request in checks.requests(ref)}
    assert len(ids) == 2


def test_a_version_without_a_canary_or_with_a_damaged_one_is_not_checked(
    checks: Canaries, clock: Any, adapter: AdapterRef
) -> None:
    (Path(adapter.path) / CANARY_FILE).write_bytes(b"{}")
    assert checks.requests(adapter) == []
    (Path(adapter.path) / CANARY_FILE).unlink()
    clock.now = CHECK_AGAIN_S
    assert checks.requests(adapter) == []


def test_trajectories_are_not_its_business(checks: Canaries) -> None:
    assert not checks.take(Generation(id="0b0c:1:0", ids=(3,)))


@pytest.mark.parametrize(
    "result",
    [
        {"error": "the adapter cannot be read", "finish_reason": "error"},
        {"finish_reason": "cancelled"},
        {"finish_reason": "length"},  # an engine that scores nothing
    ],
)
def test_a_check_without_logprobs_is_no_verdict(
    checks: Canaries, adapter: AdapterRef, task: Any, result: dict[str, str]
) -> None:
    (request,) = checks.requests(adapter)
    assert checks.take(Generation(id=request.id, **result))
    assert _canary(adapter) == {}
    task.refresh_from_db()
    assert task.state == "running"


def test_a_check_that_cannot_be_recorded_ends_no_thread(
    checks: Canaries, adapter: AdapterRef, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(*_: Any) -> bool:
        raise OSError("no database")

    (request,) = checks.requests(adapter)
    monkeypatch.setattr(canaries, "record_canary", away)
    assert checks.take(_scored(request, (-1.0, -2.0)))


def test_what_is_never_answered_is_forgotten(
    checks: Canaries, clock: Any, adapter: AdapterRef, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(canaries, "MAX_UNDER_WAY", 2)
    asked = []
    for _ in range(3):
        asked += checks.requests(adapter)
        clock.now += CHECK_AGAIN_S
    assert checks.take(_scored(asked[0], (-9.0, -9.0)))
    assert _canary(adapter) == {}


class ServesAnother:
    """Stands in for EngineThread: whatever it is asked for, it applies one wrong adapter."""

    is_alive = True

    def __init__(self, on_done: Callable[[list[Generation]], None]) -> None:
        self.on_done = on_done
        self.requests: list[GenerationRequest] = []

    def submit(self, requests: Sequence[GenerationRequest]) -> bool:
        self.requests += requests
        self.on_done(
            [_scored(r, (-3.0, -1.0) if r.needs_prompt_logprobs else ()) for r in requests]
        )
        return True

    def cancel(self, ids: Iterable[str]) -> None:
        """Nothing to end."""


@pytest.fixture
def host(monkeypatch: pytest.MonkeyPatch) -> Iterator[rollout.RolloutHost]:
    alive = SimpleNamespace(incarnation="inc", stop=lambda: None)
    monkeypatch.setattr(hosting, "_heartbeat", alive)
    host = rollout.RolloutHost(ServesAnother, (0,))
    monkeypatch.setattr(rollout, "_host", host)
    yield host
    host._leaving.set()


def test_an_engine_that_serves_another_adapter_pauses_the_task_while_its_group_goes_on(
    host: Any, adapter: AdapterRef, task: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[Generation] = []
    monkeypatch.setattr(rollout, "_send_on", lambda *given: sent.append(given[-1]))
    artifacts.put_directory("adapters/1", Path(adapter.path))
    joins.open_attempt("g", 1, 2, "queue:rollout.tiny")
    rollout.generate(
        {
            "task": adapter.task,
            "step": 1,
            "group": "g",
            "attempt": 1,
            "base_model": "tiny",
            "version": 1,
            "digest": adapter.digest,
            "adapter": "adapters/1",
            "prompt": pack_ids([1, 2]),
            "row": {},
            "has_turns": False,
            "max_turns": 1,
            "indexes": [0, 1],
            "seeds": [7, 8],
            "max_new_tokens": 3,
            "temperature": 1.0,
        }
    )
    deadline = time.monotonic() + 10
    while len(sent) < 2 and time.monotonic() < deadline:
        time.sleep(0.01)
    task.refresh_from_db()
    assert [generation.id for generation in sent] == ["g:1:0", "g:1:1"]
    assert [request.id.split(":")[0] for request in host.engine.requests] == ["canary", "g", "g"]
    assert task.state == "paused"
    assert task.pause_reason.startswith("Version 1 is not served as it was trained")
    assert mismatch.limits("bfloat16").canary < _canary(adapter)["mean"]
    assert host.is_whole
