from __future__ import annotations

import queue

import pytest

from engine.emulation.engine import MAX_LATE_S, EmulatedEngine
from engine.emulation.script import Script
from engine.rollout.service import EngineThread
from engine.simulation.performance.cost_models import EngineCost
from engine.types import AdapterRef, Generation, GenerationRequest, SamplingParams

STOP = 2


class Clock:
    """Time that only sleeping moves."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def engine(tokens: dict[int, int], clock: Clock, slots: int = 10) -> EmulatedEngine:
    script = Script(
        engine=EngineCost(step_s=1.0, sequence_s=0.1, slots=slots),
        pass_s={},
        tokens={seed: [count] for seed, count in tokens.items()},
        tools_s={},
    )
    return EmulatedEngine(script, slots, clock, clock.sleep)


def request(seed: int, most: int = 1_000) -> GenerationRequest:
    adapter = AdapterRef("task", 0, f"digest {seed}", "/nowhere")
    sampling = SamplingParams(max_new_tokens=most, stop_ids=(STOP,))
    return GenerationRequest(f"r{seed}", adapter, (7, 8), sampling, seed)


def test_sequences_advance_in_lock_step_and_each_slows_all() -> None:
    clock = Clock()
    one = engine({1: 1, 2: 3}, clock)
    one.submit([request(1), request(2)])
    first = one.step()
    assert [done.id for done in first] == ["r1"]
    assert clock.now == pytest.approx(101.2)
    assert one.step() == []
    (second,) = one.step()
    assert second.id == "r2"
    assert clock.now == pytest.approx(101.2 + 2 * 1.1)
    assert not one.has_work


def test_what_is_generated_has_the_scripts_length_and_the_requests_digest() -> None:
    one = engine({3: 4}, Clock())
    one.submit([request(3)])
    done: list[Generation] = []
    while one.has_work:
        done += one.step()
    assert (len(done[0].ids), len(done[0].logprobs)) == (4, 4)
    assert done[0].ids[-1] == STOP
    assert (done[0].finish_reason, done[0].digest) == ("stop", "digest 3")
    assert one.stats().tokens_generated == 4


def test_those_without_a_slot_wait() -> None:
    one = engine({1: 1, 2: 1}, Clock(), slots=1)
    one.submit([request(1), request(2)])
    assert one.num_free_slots == 0
    assert [done.id for done in one.step()] == ["r1"]
    assert (one.stats().num_running, one.stats().num_waiting) == (0, 1)
    assert [done.id for done in one.step()] == ["r2"]


def test_a_process_that_is_late_does_not_slow_the_device() -> None:
    clock = Clock()
    one = engine({1: 3}, clock)
    one.submit([request(1)])
    one.step()
    clock.now += 0.8  # something else took the processor
    one.step()
    assert clock.now == pytest.approx(100 + 2 * 1.1)


def test_a_process_that_was_stopped_does_not_catch_up() -> None:
    clock = Clock()
    one = engine({1: 100}, clock)
    one.submit([request(1)])
    one.step()
    clock.now += 60
    stopped_until = clock.now
    one.step()
    assert clock.now == pytest.approx(stopped_until - MAX_LATE_S + 1.1)


def test_an_idle_device_does_not_work_ahead() -> None:
    clock = Clock()
    one = engine({1: 1, 2: 1}, clock)
    one.submit([request(1)])
    one.step()
    clock.now += 0.5
    began = clock.now
    one.submit([request(2)])
    one.step()
    assert clock.now == pytest.approx(began + 1.1)


def test_a_sequence_that_the_script_does_not_know_ends_with_an_error() -> None:
    one = engine({}, Clock())
    one.submit([request(9)])
    (done,) = one.step()
    assert done.finish_reason == "error"
    assert "script" in done.error


def test_a_cancelled_sequence_leaves_and_its_next_turn_is_whole() -> None:
    one = engine({1: 2, 5: 9}, Clock())
    one.submit([request(1)])
    one.step()
    one.cancel(["r1", "unknown"])
    assert [done.finish_reason for done in one.step()] == ["cancelled"]
    again = GenerationRequest("r1", request(5).adapter, (7,), request(5).sampling, seed=5)
    one.submit([again])
    done: list[Generation] = []
    while one.has_work:
        done += one.step()
    assert [len(generation.ids) for generation in done] == [9]


def test_it_works_in_the_thread_that_hosts_engines() -> None:
    clock, done = Clock(), queue.Queue[list[Generation]]()
    thread = EngineThread(lambda: engine({1: 2, 2: 2}, clock), done.put)
    assert thread.submit([request(1), request(2)])
    ended = done.get(timeout=10)
    assert sorted(generation.id for generation in ended) == ["r1", "r2"]
    thread.close()
    thread.join(10)
