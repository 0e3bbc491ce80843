"""The torch engine against transformers + PEFT, alone and in company."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from peft import PeftModel
from transformers import AutoModelForCausalLM

from engine.models.load import load_base_model
from engine.models.shapes import linear_shapes
from engine.rollout.torch_engine import TorchEngine
from engine.types import AdapterRef, Generation, GenerationRequest, SamplingParams
from tests.tiny import build_tiny_model, store_adapter

PROMPTS = [tuple(range(10, 10 + n)) for n in (1, 5, 23, 9)]


@pytest.fixture(scope="module")
def adapters(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> list[AdapterRef]:
    """Two of one rank class, one of another, one for two layers only."""
    shapes = linear_shapes(tiny_model)
    folder = tmp_path_factory.mktemp("adapters")
    some = [
        store_adapter(folder / str(i), shapes, rank, seed=i, task=f"task{i}")
        for i, rank in enumerate([4, 8, 20])
    ]
    targets = ("q_proj", "down_proj")
    return [*some, store_adapter(folder / "few", shapes, 3, 9, "few", targets=targets)]


@pytest.fixture
def engine(tiny_model: Path) -> TorchEngine:
    return make_engine(tiny_model)


def make_engine(path: Path, num_slots: int = 8, **options: int) -> TorchEngine:
    return TorchEngine(load_base_model(path, "float32", "cpu"), num_slots=num_slots, **options)


def request(
    name: str,
    adapter: AdapterRef,
    ids: tuple[int, ...] = PROMPTS[1],
    seed: int = 0,
    new: int = 12,
    temperature: float = 1.0,
    stop: tuple[int, ...] = (),
) -> GenerationRequest:
    sampling = SamplingParams(new, temperature, stop_ids=stop)
    return GenerationRequest(name, adapter, ids, sampling, seed)


def run(engine: TorchEngine, *requests: GenerationRequest) -> dict[str, Generation]:
    engine.submit(requests)
    return finish(engine)


def finish(engine: TorchEngine) -> dict[str, Generation]:
    done: dict[str, Generation] = {}
    while engine.has_work:
        for generation in engine.step():
            assert generation.id not in done
            done[generation.id] = generation
    return done


def reference_logprobs(
    path: Path, adapter: AdapterRef, ids: tuple[int, ...], new: tuple[int, ...], heat: float
) -> torch.Tensor:
    """transformers + PEFT on the whole sequence: log-probs of the new tokens."""
    base = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32)
    model = PeftModel.from_pretrained(base, adapter.path)
    with torch.no_grad():
        logits = model(torch.tensor([[*ids, *new]])).logits[0, len(ids) - 1 : -1]
    return (logits / heat).log_softmax(-1).gather(1, torch.tensor(new)[:, None])[:, 0]


def test_logprobs_are_those_of_transformers_and_peft_in_a_mixed_batch(
    tiny_model: Path, adapters: list[AdapterRef], engine: TorchEngine
) -> None:
    heats = [1.0, 0.7, 1.3, 1.0]
    requests = [
        request(
            f"{a}.{g}",
            adapters[a],
            PROMPTS[a],
            seed=10 * a + g,
            new=6 + 3 * a,
            temperature=heats[a],
        )
        for a in range(4)
        for g in range(2)
    ]
    done = run(engine, *requests)
    for item in requests:
        generation = done[item.id]
        assert generation.error == "" and generation.digest == item.adapter.digest
        assert len(generation.ids) == item.sampling.max_new_tokens
        wanted = reference_logprobs(
            tiny_model, item.adapter, item.ids, generation.ids, item.sampling.temperature
        )
        torch.testing.assert_close(torch.tensor(generation.logprobs), wanted, rtol=0, atol=1e-4)


@pytest.mark.parametrize("kind", ["qwen2", "qwen3"])
def test_qwen_models_match_transformers(tmp_path: Path, kind: str) -> None:
    path = build_tiny_model(tmp_path / "model", seed=1, model_type=kind, num_key_value_heads=1)
    adapter = store_adapter(tmp_path / "adapter", linear_shapes(path), 8)
    generation = run(make_engine(path), request("a", adapter, PROMPTS[2]))["a"]
    wanted = reference_logprobs(path, adapter, PROMPTS[2], generation.ids, 1.0)
    torch.testing.assert_close(torch.tensor(generation.logprobs), wanted, rtol=0, atol=1e-4)


def test_adapters_differ_from_each_other_and_from_the_base(
    tiny_model: Path, adapters: list[AdapterRef]
) -> None:
    """Else the comparison above would prove nothing."""
    ids, new = PROMPTS[2], (40, 41, 42)
    rows = [reference_logprobs(tiny_model, adapter, ids, new, 1.0) for adapter in adapters]
    for i, one in enumerate(rows):
        for other in rows[i + 1 :]:
            assert (one - other).abs().max() > 0.05


def test_a_seed_gives_the_same_tokens_whatever_else_is_in_the_batch(
    tiny_model: Path, adapters: list[AdapterRef], engine: TorchEngine
) -> None:
    mine = request("mine", adapters[0], seed=7, new=20)
    alone = run(engine, mine)["mine"]
    others = [
        request(f"other{i}", adapters[i % 4], PROMPTS[i % 4], seed=i, new=3 + 4 * i)
        for i in range(12)
    ]
    engine.submit(others[:5])
    engine.step()
    engine.submit([others[5], mine, *others[6:]])
    together = finish(engine)["mine"]
    assert together.ids == alone.ids
    assert together.logprobs == pytest.approx(alone.logprobs, abs=1e-5)


def test_other_seeds_give_other_tokens(adapters: list[AdapterRef], engine: TorchEngine) -> None:
    done = run(engine, *(request(f"r{i}", adapters[0], seed=i, new=10) for i in range(8)))
    assert len({generation.ids for generation in done.values()}) == 8


def test_a_prompt_of_a_group_is_prefilled_once(
    adapters: list[AdapterRef], engine: TorchEngine
) -> None:
    run(engine, *(request(f"r{i}", adapters[0], PROMPTS[2], seed=i) for i in range(4)))
    assert engine.stats().tokens_prefilled == len(PROMPTS[2])
    run(engine, *(request(f"r{i}", adapters[i], PROMPTS[2], seed=i) for i in range(2)))
    assert engine.stats().tokens_prefilled == 3 * len(PROMPTS[2])


def test_more_sequences_than_slots_wait_and_all_finish(
    tiny_model: Path, adapters: list[AdapterRef]
) -> None:
    engine = make_engine(tiny_model, num_slots=3, prefill_tokens=10, chunk_tokens=4)
    requests = [
        request(f"r{i}", adapters[i % 2], PROMPTS[i % 4], seed=i, new=2 + i) for i in range(9)
    ]
    engine.submit(requests)
    assert engine.num_free_slots == 0
    seen = []
    while engine.has_work:
        seen += engine.step()
        assert engine.stats().num_running <= 3
    assert {g.id: len(g.ids) for g in seen} == {f"r{i}": 2 + i for i in range(9)}
    assert engine.num_free_slots == 3
    wide = make_engine(tiny_model, num_slots=9)
    assert {g.id: g.ids for g in seen} == {i: g.ids for i, g in run(wide, *requests).items()}


def test_a_stop_id_ends_the_sequence_and_is_kept(
    adapters: list[AdapterRef], engine: TorchEngine
) -> None:
    free = run(engine, request("a", adapters[0], new=12))["a"]
    stop = free.ids[4]
    stopped = run(engine, request("a", adapters[0], new=12, stop=(stop,)))["a"]
    assert stopped.finish_reason == "stop" and free.finish_reason == "length"
    assert stopped.ids == free.ids[: free.ids.index(stop) + 1]


def test_cancel_ends_running_and_waiting_sequences_and_nobody_else(
    tiny_model: Path, adapters: list[AdapterRef]
) -> None:
    engine = make_engine(tiny_model, num_slots=2)
    wanted = run(engine, request("stays", adapters[1], seed=5, new=15))["stays"]
    engine.submit(
        [
            request("goes", adapters[0]),
            request("stays", adapters[1], seed=5, new=15),
            request("waits", adapters[0]),
        ]
    )
    engine.step()
    engine.cancel(["goes", "waits", "unknown"])
    done = finish(engine)
    assert {i: g.finish_reason for i, g in done.items()} == {
        "goes": "cancelled",
        "waits": "cancelled",
        "stays": "length",
    }
    assert done["stays"].ids == wanted.ids
    assert engine.stats().adapters_in_use == 0


def test_an_adapter_of_another_digest_ends_only_its_own_requests(
    adapters: list[AdapterRef], engine: TorchEngine
) -> None:
    forged = replace(adapters[0], digest="0" * 64, version=1)
    done = run(engine, request("bad", forged), request("good", adapters[0]))
    assert done["bad"].finish_reason == "error" and done["bad"].ids == ()
    assert "digest" in done["bad"].error
    assert done["good"].finish_reason == "length"


def test_an_adapter_that_is_not_there_ends_only_its_own_requests(
    adapters: list[AdapterRef], engine: TorchEngine, tmp_path: Path
) -> None:
    lost = replace(adapters[0], path=str(tmp_path / "nowhere"), version=3)
    done = run(engine, request("bad", lost), request("good", adapters[1]))
    assert "cannot be read" in done["bad"].error and done["good"].error == ""


def test_an_adapter_of_another_base_model_is_refused(
    adapters: list[AdapterRef], engine: TorchEngine, tmp_path: Path
) -> None:
    alien = store_adapter(tmp_path, {"model.layers.0.self_attn.q_proj": (32, 32)})
    done = run(engine, request("bad", alien), request("good", adapters[1]))
    assert "does not fit the base" in done["bad"].error and done["good"].error == ""


def test_an_adapter_that_overflows_harms_nobody_who_comes_after_in_its_slot(
    tiny_model: Path, adapters: list[AdapterRef], tmp_path: Path
) -> None:
    from engine.adapters.digest import adapter_digest
    from engine.adapters.files import read_adapter, write_adapter

    tensors = {n: t * 1e18 for n, t in read_adapter(adapters[0].path).tensors.items()}
    write_adapter(tmp_path, tensors, rank=4, alpha=8.0, target_modules=("q_proj",))
    hostile = AdapterRef("hostile", 0, adapter_digest(tensors), str(tmp_path))
    engine = make_engine(tiny_model, num_slots=1)
    wanted = run(engine, request("good", adapters[1]))["good"]
    assert "not finite" in run(engine, request("bad", hostile, PROMPTS[2]))["bad"].error
    assert run(engine, request("good", adapters[1]))["good"].ids == wanted.ids


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"ids": ()}, "prompt is empty"),
        ({"ids": (5, 999_999)}, "token ids outside"),
        ({"ids": tuple([5] * 60)}, "more than the 64"),
        ({"sampling": SamplingParams(0)}, "at least 1"),
        ({"sampling": SamplingParams(4, temperature=0.0)}, "temperature"),
        ({"sampling": SamplingParams(4, top_p=1.5)}, "top_p"),
    ],
)
def test_a_request_that_cannot_be_served_ends_with_the_reason(
    tiny_model: Path, adapters: list[AdapterRef], change: dict[str, object], problem: str
) -> None:
    engine = make_engine(tiny_model, max_length=64)
    bad = replace(request("bad", adapters[0]), **change)
    done = run(engine, bad, request("good", adapters[0]))
    assert problem in done["bad"].error and done["good"].error == ""


def test_an_id_that_is_held_already_is_refused(
    adapters: list[AdapterRef], engine: TorchEngine
) -> None:
    from engine.errors import RolloutError

    engine.submit([request("a", adapters[0])])
    with pytest.raises(RolloutError, match="already"):
        engine.submit([request("b", adapters[0]), request("a", adapters[0])])
    assert list(finish(engine)) == ["a"]


def test_unused_adapters_are_kept_up_to_a_limit_and_used_ones_always(
    tiny_model: Path, adapters: list[AdapterRef]
) -> None:
    engine = make_engine(tiny_model, max_unused_adapters=1)
    engine.submit([request(f"r{i}", adapters[i], new=50 + 3 * i) for i in range(4)])
    while engine.stats().num_running < 4:
        assert not engine.step()
    assert engine.stats().adapters_in_use == 4
    finish(engine)
    stats = engine.stats()
    assert (stats.adapters_in_use, stats.adapters_cached) == (0, 1)


def test_speed_is_counted_over_recent_steps_and_falls_when_idle(
    adapters: list[AdapterRef], engine: TorchEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    from engine.rollout import torch_engine

    clock = [100.0]
    monkeypatch.setattr(torch_engine.time, "monotonic", lambda: clock[0])
    engine.submit([request(f"r{i}", adapters[0], seed=i, new=4) for i in range(2)])
    while engine.has_work:
        engine.step()
        clock[0] += 0.5 if engine.stats().tokens_generated else 0.0  # not while the adapter loads
    assert engine.stats().tokens_generated == 8
    assert engine.stats().tokens_per_s == pytest.approx(8 / 2.5)  # 5 steps: one begins later
    clock[0] += 4.5
    assert engine.stats().tokens_per_s == pytest.approx(8 / 7.0)
    clock[0] += 20
    assert engine.stats().tokens_per_s == 0.0


def test_reset_forgets_everything_and_the_engine_goes_on(
    adapters: list[AdapterRef], engine: TorchEngine
) -> None:
    wanted = run(engine, request("a", adapters[0]))["a"]
    engine.submit([request(f"r{i}", adapters[i % 4], PROMPTS[2]) for i in range(12)])
    engine.step()
    engine.reset()
    assert not engine.has_work and engine.num_free_slots == 8
    assert run(engine, request("a", adapters[0]))["a"].ids == wanted.ids


def test_an_engine_that_broke_off_in_a_step_is_whole_after_reset(
    adapters: list[AdapterRef], engine: TorchEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = run(engine, request("a", adapters[0]))["a"]

    def full(*_: object) -> None:
        raise MemoryError("no room for the cache")

    engine.submit([request("a", adapters[0]), request("b", adapters[1])])
    with monkeypatch.context() as patch:
        patch.setattr(engine._arena, "write", full)
        with pytest.raises(MemoryError):
            engine.step()
    engine.reset()
    assert engine.stats().adapters_in_use == 0
    assert run(engine, request("a", adapters[0]))["a"].ids == wanted.ids
    assert engine.stats().adapters_in_use == 0


def test_sequences_that_outgrow_the_kv_cache_are_computed_again_and_get_the_same_tokens(
    tiny_model: Path, adapters: list[AdapterRef]
) -> None:
    requests = [
        request(
            f"r{i}", adapters[i % 4], tuple(10 + j % 200 for j in range(390 + i)), seed=i, new=300
        )
        for i in range(6)
    ]
    wide = run(make_engine(tiny_model), *requests)
    narrow = make_engine(tiny_model, kv_bytes=2 * 1024 * 512, max_length=1024)
    assert narrow.stats().kv_tokens == 2048
    done = run(narrow, *requests)
    assert narrow.stats().preemptions > 0
    assert {name: g.ids for name, g in done.items()} == {name: g.ids for name, g in wide.items()}
    assert narrow.stats().kv_bytes == 0


def test_a_later_turn_continues_from_the_kv_of_the_one_before(
    tiny_model: Path, adapters: list[AdapterRef]
) -> None:
    engine = make_engine(tiny_model)
    first = run(engine, replace(request("t1", adapters[0], PROMPTS[2]), session="s"))["t1"]
    assert engine.stats().sessions_kept == 1
    computed = engine.stats().tokens_prefilled
    ids = (*PROMPTS[2], *first.ids, 30, 31, 32)
    second = run(engine, replace(request("t2", adapters[0], ids), session="s"))["t2"]
    assert engine.stats().tokens_prefilled - computed == 4  # the last of the turn, and three new
    fresh = run(make_engine(tiny_model), request("t2", adapters[0], ids))["t2"]
    assert second.ids == fresh.ids
    assert second.logprobs == pytest.approx(fresh.logprobs, abs=1e-5)
    engine.forget(["s"])
    assert engine.stats().sessions_kept == 0 and engine.stats().kv_bytes == 0


def test_a_long_prompt_in_chunks_beside_others_gives_what_it_gives_alone(
    tiny_model: Path, adapters: list[AdapterRef]
) -> None:
    long = request("long", adapters[0], tuple(range(5, 250)), new=10)
    alone = run(make_engine(tiny_model), long)["long"]
    engine = make_engine(tiny_model, chunk_tokens=16)
    engine.submit([request(f"r{i}", adapters[i], seed=i, new=40) for i in range(4)])
    while engine.stats().num_running < 4:
        engine.step()
    engine.submit([long])
    together = finish(engine)["long"]
    assert together.ids == alone.ids
    assert together.logprobs == pytest.approx(alone.logprobs, abs=1e-5)


def test_a_cache_that_does_not_hold_the_longest_sequence_is_refused(tiny_model: Path) -> None:
    from engine.errors import RolloutError

    with pytest.raises(RolloutError, match="does not hold one sequence of 2000 tokens"):
        make_engine(tiny_model, kv_bytes=1024 * 512, max_length=2000)
