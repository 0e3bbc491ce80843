"""The thread that hosts an engine, over the real engine where its work matters."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from engine.models.load import load_base_model
from engine.models.shapes import linear_shapes
from engine.rollout.protocol import EngineStats
from engine.rollout.service import EngineThread
from engine.rollout.torch_engine import TorchEngine
from engine.types import AdapterRef, Generation, GenerationRequest, SamplingParams
from tests.tiny import store_adapter

LONG = 1500  # tokens: long enough to be caught in the act


class Host:
    """An EngineThread and what it handed on."""

    def __init__(self, engine: TorchEngine, **options: int) -> None:
        self.done: queue.Queue[Generation] = queue.Queue()
        self.thread = EngineThread(
            lambda: engine, lambda items: [self.done.put(g) for g in items], **options
        )

    def take(self, count: int) -> dict[str, Generation]:
        return {g.id: g for g in (self.done.get(timeout=60) for _ in range(count))}


@pytest.fixture
def engine(tiny_model: Path) -> TorchEngine:
    return TorchEngine(load_base_model(tiny_model, "float32", "cpu"), num_slots=4)


@pytest.fixture
def host(engine: TorchEngine) -> Iterator[Host]:
    host = Host(engine, max_held=6)
    yield host
    host.thread.drain(30)


@pytest.fixture
def adapter(tiny_model: Path, tmp_path: Path) -> AdapterRef:
    return store_adapter(tmp_path / "adapter", linear_shapes(tiny_model))


def requests(adapter: AdapterRef, *names: str, new: int = 4) -> list[GenerationRequest]:
    return [
        GenerationRequest(name, adapter, (5, 6, 7), SamplingParams(new), seed)
        for seed, name in enumerate(names)
    ]


def in_thread(work: object) -> threading.Thread:
    thread = threading.Thread(target=work, daemon=True)  # type: ignore[arg-type]
    thread.start()
    return thread


def test_every_submitted_sequence_comes_back_once(host: Host, adapter: AdapterRef) -> None:
    names = [f"r{i}" for i in range(30)]
    for start in range(0, 30, 5):
        assert host.thread.submit(requests(adapter, *names[start : start + 5]))
    assert sorted(host.take(30)) == sorted(names)
    assert host.done.empty()


def test_submit_blocks_while_the_engine_is_full(host: Host, adapter: AdapterRef) -> None:
    host.thread.submit(requests(adapter, "a", "b", "c", "d", "e", new=LONG))
    entered = threading.Event()
    in_thread(lambda: host.thread.submit(requests(adapter, "f", "g")) and entered.set())
    assert not entered.wait(0.3)
    host.thread.cancel(["a", "b"])
    assert entered.wait(10)
    host.thread.cancel(["c", "d", "e"])
    done = host.take(7)
    assert {name for name, g in done.items() if g.finish_reason == "length"} == {"f", "g"}


def test_more_than_fits_is_taken_when_nothing_else_is_held(host: Host, adapter: AdapterRef) -> None:
    names = [f"r{i}" for i in range(20)]
    assert host.thread.submit(requests(adapter, *names))
    assert len(host.take(20)) == 20


def test_an_id_that_is_held_already_is_refused(host: Host, adapter: AdapterRef) -> None:
    host.thread.submit(requests(adapter, "a", new=LONG))
    with pytest.raises(ValueError, match="already"):
        host.thread.submit(requests(adapter, "a"))


def test_drain_returns_exactly_what_did_not_end(host: Host, adapter: AdapterRef) -> None:
    short, long = requests(adapter, "short"), requests(adapter, "x", "y", "z", "w", new=LONG)
    host.thread.submit([*short, *long])
    assert list(host.take(1)) == ["short"]
    left = host.thread.drain(30)
    assert sorted(left, key=lambda r: r.id) == sorted(long, key=lambda r: r.id)
    assert host.done.empty()
    assert not host.thread.submit(requests(adapter, "late"))


def test_closing_lets_a_blocked_submit_go_without_accepting(
    host: Host, adapter: AdapterRef
) -> None:
    host.thread.submit(requests(adapter, "a", "b", "c", "d", "e", "f", new=LONG))
    answers: queue.Queue[bool] = queue.Queue()
    in_thread(lambda: answers.put(host.thread.submit(requests(adapter, "late"))))
    time.sleep(0.1)
    host.thread.close()
    assert answers.get(timeout=10) is False
    host.thread.join(30)
    assert "late" not in {request.id for request in host.thread.drain(0)}


def test_an_exception_of_the_engine_ends_what_it_held_and_the_thread_goes_on(
    engine: TorchEngine, host: Host, adapter: AdapterRef, monkeypatch: pytest.MonkeyPatch
) -> None:
    step = engine.step

    def breaks_once() -> list[Generation]:
        monkeypatch.setattr(engine, "step", step)
        raise MemoryError("no room for the cache")

    monkeypatch.setattr(engine, "step", breaks_once)
    host.thread.submit(requests(adapter, "a", "b"))
    done = host.take(2)
    assert {g.finish_reason for g in done.values()} == {"error"}
    assert "no room for the cache" in done["a"].error
    host.thread.submit(requests(adapter, "a", "c"))
    assert {g.finish_reason for g in host.take(2).values()} == {"length"}


def test_a_callback_that_raises_does_not_end_the_thread(
    engine: TorchEngine, adapter: AdapterRef
) -> None:
    seen: queue.Queue[str] = queue.Queue()

    def on_done(items: list[Generation]) -> None:
        for generation in items:
            seen.put(generation.id)
        raise RuntimeError("the outbox is gone")

    thread = EngineThread(lambda: engine, on_done)
    for name in ("a", "b"):
        thread.submit(requests(adapter, name))
        assert seen.get(timeout=30) == name
    assert thread.stats().tokens_generated == 8
    assert thread.stats().busy_s > 0
    assert thread.drain(30) == []


class Figures:
    """Stands in for an engine that tells what is free, and keeps sessions."""

    num_slots = num_free_slots = 4
    has_work = False

    def __init__(self) -> None:
        self.told = EngineStats(num_slots=4, kv_tokens_free=100, adapters_free=3)
        self.forgotten: list[str] = []

    def submit(self, requests: Sequence[GenerationRequest]) -> None: ...

    def cancel(self, ids: Iterable[str]) -> None: ...

    def forget(self, sessions: Iterable[str]) -> None:
        self.forgotten += sessions
        self.told = replace(self.told, kv_tokens_free=60, adapters_free=0, adapters_in_use=3)

    def step(self) -> list[Generation]:
        return []

    def reset(self) -> None: ...

    def stats(self) -> EngineStats:
        return self.told


def test_sessions_are_forgotten_by_an_idle_engine_and_what_fits_at_all_is_told() -> None:
    """All KV is free before the first sequence; adapter slots are those in use and those free."""
    engine = Figures()
    thread = EngineThread(lambda: engine, lambda done: None)
    first = thread.stats()
    assert (first.kv_tokens, first.adapter_slots) == (100, 3)
    thread.forget(["g:1:0", "g:1:1"])
    deadline = time.monotonic() + 10
    while thread.stats() == first and time.monotonic() < deadline:
        time.sleep(0.01)
    thread.drain(10)
    assert engine.forgotten == ["g:1:0", "g:1:1"]
    stats = thread.stats()
    assert (stats.kv_tokens, stats.kv_tokens_free, stats.adapter_slots) == (100, 60, 3)


def test_an_engine_that_tells_nothing_of_its_room_is_not_taken_for_full() -> None:
    engine = Figures()
    engine.told = EngineStats(num_slots=4, adapters_in_use=2)
    thread = EngineThread(lambda: engine, lambda done: None)
    assert (thread.stats().kv_tokens, thread.stats().adapter_slots) == (0, 0)
    thread.drain(10)


def test_an_engine_that_cannot_be_made_is_told_where_it_was_asked_for() -> None:
    def broken() -> TorchEngine:
        raise ValueError("no weights")

    with pytest.raises(ValueError, match="no weights"):
        EngineThread(broken, lambda done: None)


def test_the_engine_is_made_in_the_thread_that_steps_it() -> None:
    makers: list[str] = []

    def make() -> Figures:
        makers.append(threading.current_thread().name)
        return Figures()

    EngineThread(make, lambda done: None).drain(10)
    assert makers == ["rollout engine"]
