"""The vLLM engine and servers that fail in every way that servers do."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from engine.errors import RolloutError
from engine.models.shapes import linear_shapes
from engine.rollout import vllm_dispatch, vllm_replica
from engine.rollout.vllm_adapters import AdapterLimits
from engine.rollout.vllm_client import ServerAway, VllmClient
from engine.rollout.vllm_dispatch import VllmOptions
from engine.rollout.vllm_engine import VllmEngine
from engine.rollout.vllm_model import read_shape
from engine.rollout.vllm_requests import Deadline
from engine.types import AdapterRef, Generation, GenerationRequest, SamplingParams
from tests.tiny import store_adapter

from .unruly import Body, Unruly, drop, fail, good_answer, hang

GIVEN_UP = 60.0  # s; a test that waits longer has failed
SOON = Deadline(floor_s=0.5, per_new_token_s=0.0, per_prompt_token_s=0.0)
LIMITS = AdapterLimits(max_loras=2, max_cpu_loras=2, max_rank=16)
Make = Callable[..., VllmEngine]


@pytest.fixture
def servers() -> Iterator[list[Unruly]]:
    both = [Unruly(), Unruly()]
    yield both
    for server in both:
        server.close()


@pytest.fixture
def server(servers: list[Unruly]) -> Unruly:
    return servers[0]


@pytest.fixture
def make(tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Make]:
    monkeypatch.setattr(vllm_replica, "WATCH_S", 0.05)
    monkeypatch.setattr(vllm_replica, "LONGEST_PAUSE_S", 0.1)
    monkeypatch.setattr(vllm_dispatch, "TICK_S", 0.1)
    made: list[VllmEngine] = []

    def make(*servers: Unruly, **options: Any) -> VllmEngine:
        given = {"num_slots": 4, "limits": LIMITS, "deadline": SOON, "start_timeout_s": 5.0}
        sources = tuple(server.url for server in servers)
        shape = read_shape(tiny_model, "float32")
        chosen = VllmOptions(sources=sources, **{**given, **options})
        engine = VllmEngine(shape, chosen, tmp_path / f"copies{len(made)}")
        made.append(engine)
        return engine

    yield make
    for engine in made:
        engine.close()


@pytest.fixture
def adapters(tiny_model: Path, tmp_path: Path) -> list[AdapterRef]:
    shapes = linear_shapes(tiny_model)
    return [store_adapter(tmp_path / str(i), shapes, 4, seed=i, task=f"task{i}") for i in range(5)]


def request(
    name: str, adapter: AdapterRef, new: int = 3, ids: tuple[int, ...] = (5, 6), **fields: Any
) -> GenerationRequest:
    return GenerationRequest(name, adapter, ids, SamplingParams(new), seed=1, **fields)


def finish(engine: VllmEngine) -> dict[str, Generation]:
    done: dict[str, Generation] = {}
    end = time.monotonic() + GIVEN_UP
    while engine.has_work:
        assert time.monotonic() < end, f"only {sorted(done)} ended"
        done |= {generation.id: generation for generation in engine.step()}
    return done


def run(engine: VllmEngine, *requests: GenerationRequest) -> dict[str, Generation]:
    engine.submit(requests)
    return finish(engine)


def until(holds: Callable[[], bool]) -> None:
    end = time.monotonic() + GIVEN_UP
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.01)


def for_adapter(ref: AdapterRef, misbehave: Callable[[Body], Any]) -> Callable[[Body], Any]:
    """Misbehave for one adapter's sequences only."""
    return lambda body: (misbehave if body["model"] == ref.name else good_answer)(body)


def answers(**change: Any) -> Callable[[Body], Any]:
    """A good answer but for some of its choice's fields."""

    def answer(body: Body) -> Any:
        status, good = good_answer(body)
        return status, {"choices": [{**good["choices"][0], **change}]}

    return answer


@pytest.mark.parametrize(
    ("misbehave", "problem"),
    [
        (hang, "counts as hung"),
        (drop, "broke the connection off"),
        (fail, "answered 500: out of memory"),
        (lambda body: (400, {"error": {"message": "bad temperature"}}), "refused: bad temperature"),
        (lambda body: (200, "<html>"), "no JSON"),
        (lambda body: (200, [1]), "no object"),
        (lambda body: (200, {"choices": []}), "not understood"),
        (answers(prompt_token_ids=[5, 7]), "other prompt tokens"),
        (answers(token_ids=[7]), "1 tokens and 3 log-probs"),
        (answers(token_ids=[7] * 9, logprobs={"token_logprobs": [-1.0] * 9}), "9 tokens"),
        (answers(logprobs={"token_logprobs": [-1.0, float("nan"), -1.0]}), "not finite"),
        (answers(finish_reason="abort"), "another reason: abort"),
    ],
)
def test_what_goes_wrong_with_a_sequence_ends_that_one_and_nobody_else(
    server: Unruly,
    make: Make,
    adapters: list[AdapterRef],
    misbehave: Callable[[Body], Any],
    problem: str,
) -> None:
    engine = make(server)
    server.complete = for_adapter(adapters[0], misbehave)
    done = run(engine, request("bad", adapters[0]), request("good", adapters[1]))
    assert done["bad"].finish_reason == "error" and problem in done["bad"].error
    assert (done["bad"].ids, done["bad"].digest) == ((), "")
    assert done["good"].ids == (7, 7, 7) and done["good"].digest == adapters[1].digest
    server.complete = good_answer
    assert run(engine, request("again", adapters[0]))["again"].error == ""
    assert engine.stats().errors == 1 and engine.stats().adapters_in_use == 0


def test_an_adapter_that_the_server_refuses_ends_all_who_wait_for_it(
    server: Unruly, make: Make, adapters: list[AdapterRef]
) -> None:
    engine = make(server)
    server.load = lambda body: (
        (400, {"error": {"message": "bad rank"}})
        if body["lora_name"] == adapters[0].name
        else (200, {})
    )
    waiting = [request(f"bad{i}", adapters[0]) for i in range(3)]
    done = run(engine, *waiting, request("good", adapters[1]))
    assert all(
        "bad rank" in done[r.id].error and adapters[0].name in done[r.id].error for r in waiting
    )
    assert done["good"].error == ""
    server.load = lambda body: (200, {})
    assert run(engine, request("again", adapters[0]))["again"].error == ""


def test_an_adapter_that_the_server_lost_is_loaded_again_from_checked_files(
    server: Unruly, make: Make, adapters: list[AdapterRef]
) -> None:
    engine = make(server)
    run(engine, request("a", adapters[0]))
    server.loaded.clear()
    assert run(engine, request("b", adapters[0]))["b"].error == ""
    assert server.loaded == [adapters[0].name]


def test_an_old_version_that_the_server_keeps_denying_ends_with_an_error(
    server: Unruly, make: Make, adapters: list[AdapterRef]
) -> None:
    engine = make(server)
    server.complete = lambda body: (404, {"error": {"message": "The model does not exist."}})
    assert "does not exist" in run(engine, request("a", adapters[0]))["a"].error


def test_what_an_earlier_worker_left_loaded_is_not_trusted(
    server: Unruly, make: Make, adapters: list[AdapterRef]
) -> None:
    server.loaded += [adapters[0].name, "task9@4#0123456789ab"]
    engine = make(server)
    assert server.loaded == []
    server.loaded.append(adapters[0].name)  # and another client's, later
    assert run(engine, request("a", adapters[0]))["a"].error == ""
    assert server.loaded == [adapters[0].name]


def test_more_adapters_than_fit_wait_and_are_never_loaded_together(
    server: Unruly, make: Make, adapters: list[AdapterRef]
) -> None:
    engine = make(server, num_slots=8)
    requests = [request(f"r{i}", adapters[i % 5], ids=(5, 6, i + 7)) for i in range(25)]
    done = run(engine, *requests)
    assert {generation.error for generation in done.values()} == {""}
    assert [done[r.id].digest for r in requests] == [r.adapter.digest for r in requests]
    assert server.most_loaded <= LIMITS.max_cpu_loras


def test_an_adapter_that_waits_is_not_kept_out_by_a_stream_for_others(
    server: Unruly, make: Make, adapters: list[AdapterRef], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vllm_dispatch, "ADAPTER_PATIENCE_S", 0.2)
    engine = make(server, deadline=Deadline())
    server.complete = lambda body: (time.sleep(0.05), good_answer(body))[1]
    numbers = iter(range(100_000))

    def stream() -> GenerationRequest:
        n = next(numbers)
        return request(f"s{n}", adapters[n % 2])

    engine.submit([*(stream() for _ in range(6)), request("waits", adapters[2])])
    end = time.monotonic() + GIVEN_UP
    done: dict[str, Generation] = {}
    while "waits" not in done:
        assert time.monotonic() < end
        done |= {generation.id: generation for generation in engine.step()}
        engine.submit([stream() for _ in range(7 - len(engine._ids))])
    assert done["waits"].error == ""


def test_a_dead_server_ends_what_it_held_and_later_sequences_wait_for_it(
    server: Unruly, make: Make, adapters: list[AdapterRef]
) -> None:
    engine = make(server, deadline=Deadline(), start_timeout_s=GIVEN_UP)
    server.complete = hang
    engine.submit([request(f"held{i}", adapters[0]) for i in range(2)])
    until(lambda: len(server.bodies) == 2)
    server.is_healthy = False
    done = finish(engine)
    assert all("went down" in done[f"held{i}"].error for i in range(2))
    server.close()
    server.complete = good_answer
    engine.submit([request("later", adapters[0])])
    assert engine.step() == [] and engine.stats().num_waiting == 1
    server.is_healthy = True
    server.open(server.port)
    assert finish(engine)["later"].ids == (7, 7, 7)
    assert server.loaded == [adapters[0].name]


def test_a_server_whose_engine_died_takes_nobody_along_who_had_not_begun(
    server: Unruly, make: Make, adapters: list[AdapterRef]
) -> None:
    """Its web server still answers, and fails at everything, until somebody looks."""
    engine = make(server, deadline=Deadline(), start_timeout_s=GIVEN_UP)
    broken = (500, {"error": {"message": "EngineCore encountered an issue"}})
    server.complete = hang
    engine.submit([request(f"r{i}", adapters[i % 4]) for i in range(12)])
    until(lambda: len(server.bodies) == 4)
    server.complete = server.load = lambda body: broken
    server.is_healthy = False
    until(lambda: not engine._dispatcher.replicas[0].is_up)
    server.complete, server.load = good_answer, lambda body: (200, {})
    server.is_healthy = True
    done = finish(engine)
    assert sum(bool(generation.error) for generation in done.values()) == 4


def test_an_adapter_at_which_a_server_keeps_failing_is_given_up(
    server: Unruly, make: Make, adapters: list[AdapterRef]
) -> None:
    engine = make(server)
    server.load = lambda body: (500, {"error": {"message": "no memory"}})
    assert "no memory" in run(engine, request("a", adapters[0]))["a"].error


def test_sequences_do_not_wait_for_ever_when_no_server_comes_back(
    server: Unruly, make: Make, adapters: list[AdapterRef]
) -> None:
    engine = make(server, start_timeout_s=0.5)
    server.close()
    done = run(engine, request("a", adapters[0]))
    assert "No vLLM server is up" in done["a"].error and "cannot be reached" in done["a"].error
    server.open(server.port)


def test_a_server_that_answers_only_on_connections_it_has_is_down(server: Unruly) -> None:
    async def look() -> None:
        client = VllmClient(server.url)
        try:
            await client.models()  # leaves a connection open, which the server goes on answering
            await client.check_health()
            server.stop_listening()
            assert await client.models() == ("base", [])
            with pytest.raises(ServerAway, match="cannot be reached"):
                await client.check_health()
        finally:
            await client.close()

    asyncio.run(look())


def test_one_replica_that_dies_harms_nobody_at_the_other(
    servers: list[Unruly], make: Make, adapters: list[AdapterRef]
) -> None:
    engine = make(*servers, num_slots=8, deadline=Deadline())
    until(lambda: engine.stats().adapter_slots == 4)
    servers[0].complete = hang
    engine.submit([request(f"r{i}", adapters[0], ids=(5, i + 6)) for i in range(8)])
    until(lambda: len(servers[0].bodies) == 4 and len(servers[1].bodies) == 4)
    servers[0].is_healthy = False
    done = finish(engine)
    assert sum("went down" in generation.error for generation in done.values()) == 4
    more = run(engine, *(request(f"m{i}", adapters[0], ids=(5, i + 6)) for i in range(8)))
    assert {generation.error for generation in more.values()} == {""}


def test_sequences_of_a_session_and_of_a_group_go_where_their_prefix_is(
    servers: list[Unruly], make: Make, adapters: list[AdapterRef]
) -> None:
    engine = make(*servers, num_slots=32)
    until(lambda: engine.stats().adapter_slots == 4)
    for group in range(4):
        ids = (9, group + 1)
        run(engine, *(request(f"g{group}.{i}", adapters[0], ids=ids) for i in range(4)))
    places = [{tuple(body["prompt"]) for body in server.bodies} for server in servers]
    assert not places[0] & places[1]
    for turn in range(6):
        ids = tuple(range(10, 12 + turn))
        run(engine, request(f"t{turn}", adapters[1], ids=ids, session="s"))
    turns = [[b for b in server.bodies if b["prompt"][0] == 10] for server in servers]
    assert sorted(map(len, turns)) == [0, 6]


def test_several_hung_sequences_in_a_row_bring_the_server_down_and_back(
    server: Unruly, make: Make, adapters: list[AdapterRef]
) -> None:
    engine = make(server, start_timeout_s=GIVEN_UP)
    server.complete = hang
    done = run(engine, *(request(f"h{i}", adapters[0]) for i in range(4)))
    assert all(
        "hung" in generation.error or "went down" in generation.error
        for generation in done.values()
    )
    server.complete = good_answer
    assert run(engine, request("a", adapters[0]))["a"].error == ""


def test_cancel_frees_the_places_of_sequences_that_hang(
    server: Unruly, make: Make, adapters: list[AdapterRef]
) -> None:
    engine = make(server, deadline=Deadline())
    server.complete = hang
    engine.submit([request(f"h{i}", adapters[i % 3]) for i in range(6)])
    until(lambda: len(server.bodies) == 4)
    engine.cancel([f"h{i}" for i in range(6)])
    assert {g.finish_reason for g in finish(engine).values()} == {"cancelled"}
    server.complete = good_answer
    assert run(engine, request("a", adapters[4]))["a"].error == ""


def test_an_engine_without_any_server_is_refused_with_the_reason(
    server: Unruly, make: Make
) -> None:
    server.close()
    with pytest.raises(RolloutError, match="cannot be reached"):
        make(server, start_timeout_s=0.3)
    server.open(server.port)


def test_every_sequence_is_a_request_of_its_own_with_all_its_parameters(
    server: Unruly, make: Make, adapters: list[AdapterRef]
) -> None:
    sampling = SamplingParams(4, 0.7, 0.9, 40, 0.05, stop_ids=(2, 3), stop=("end",))
    one = GenerationRequest("a", adapters[0], (5, 6), sampling, seed=2**64 + 11)
    run(make(server), one, replace(one, id="b", seed=12))
    assert sorted(body["seed"] for body in server.bodies) == [11, 12]
    body = server.bodies[0]
    assert body["n"] == 1 and body["ignore_eos"] and body["return_token_ids"]
    assert (body["temperature"], body["top_p"], body["top_k"], body["min_p"]) == (
        0.7,
        0.9,
        40,
        0.05,
    )
    assert (body["stop_token_ids"], body["stop"]) == ([2, 3], ["end"])
    assert body["model"] == adapters[0].name and body["prompt"] == [5, 6]


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"sampling": SamplingParams(3, temperature=2.5)}, "temperatures from 0.01 to 2"),
        ({"sampling": SamplingParams(3, temperature=0.001)}, "temperatures from 0.01 to 2"),
        ({"sampling": SamplingParams(3, stop=("a", "b", "c", "d", "e"))}, "at most 4 stop strings"),
        (
            {"sampling": SamplingParams(3, temperature=0.5), "needs_prompt_logprobs": True},
            "at temperature 1",
        ),
    ],
)
def test_what_vllm_would_answer_differently_is_not_sent(
    server: Unruly,
    make: Make,
    adapters: list[AdapterRef],
    change: dict[str, Any],
    problem: str,
) -> None:
    asked = replace(request("a", adapters[0]), **change)
    assert problem in run(make(server), asked)["a"].error
    assert server.bodies == []
