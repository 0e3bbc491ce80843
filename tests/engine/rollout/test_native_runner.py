"""The engine with native kernels gives what it gives without them, and what transformers gives."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from peft import PeftModel
from transformers import AutoModelForCausalLM

from engine.models.load import load_base_model
from engine.models.shapes import linear_shapes
from engine.native.build import Native, native
from engine.rollout import native_runner
from engine.rollout.native_runner import NativeRunner, can_run_natively
from engine.rollout.torch_engine import TorchEngine
from engine.types import AdapterRef, Generation, GenerationRequest, SamplingParams
from tests.tiny import build_tiny_model, store_adapter

pytestmark = pytest.mark.skipif(native().kernels is None, reason=native().reason)
FAMILIES = ("llama", "qwen2", "qwen3")
LONG = tuple(100 + i % 50 for i in range(150))  # its first chunk's attention is torch's
PROMPTS = [tuple(range(10, 10 + n)) for n in (1, 5, 23)]


@pytest.fixture(scope="module", params=FAMILIES)
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_tiny_model(
        tmp_path_factory.mktemp(request.param), model_type=request.param, head_dim=32
    )


@pytest.fixture(scope="module")
def adapters(model: Path, tmp_path_factory: pytest.TempPathFactory) -> list[AdapterRef]:
    shapes = linear_shapes(model)
    folder = tmp_path_factory.mktemp("adapters")
    some = [store_adapter(folder / str(i), shapes, 4 * i, i, f"task{i}") for i in (1, 2, 5)]
    return [*some, store_adapter(folder / "few", shapes, 3, 9, "few", targets=("q_proj",))]


def run(engine: TorchEngine, adapters: list[AdapterRef], new: int = 6) -> dict[str, Generation]:
    """Every prompt with every adapter, prompt log-probs of the ids included."""
    sampling = SamplingParams(new)
    engine.submit(
        [
            GenerationRequest(
                f"{i}.{adapter.task}", adapter, ids, sampling, i, needs_prompt_logprobs=True
            )
            for i, ids in enumerate([*PROMPTS, LONG])
            for adapter in adapters
        ]
    )
    done: dict[str, Generation] = {}
    while engine.has_work:
        done |= {generation.id: generation for generation in engine.step()}
    assert not {g.error for g in done.values() if g.error}
    return done


def test_log_probs_are_those_of_transformers_and_peft(
    model: Path, adapters: list[AdapterRef]
) -> None:
    engine = TorchEngine(load_base_model(model, "bfloat16", "cpu"), chunk_tokens=96)
    assert isinstance(engine._runner, NativeRunner)
    done = run(engine, adapters)
    ours, right = [], []
    for adapter in adapters:
        base = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32)
        peft = PeftModel.from_pretrained(base, adapter.path)
        for i, prompt in enumerate([*PROMPTS, LONG]):
            found = done[f"{i}.{adapter.task}"]
            ids = [*prompt, *found.ids]
            with torch.no_grad():
                logp = peft(torch.tensor([ids])).logits[0].log_softmax(-1)
            right += logp[range(len(ids) - 1), ids[1:]].tolist()
            ours += [*found.prompt_logprobs, *found.logprobs]
    difference = torch.tensor(ours) - torch.tensor(right)
    assert len(ours) > 500
    assert difference.abs().mean() < 0.02 and difference.abs().max() < 0.25


def test_it_does_without(
    model: Path, adapters: list[AdapterRef], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same prompts get the same log-probs from torch alone, but for rounding."""
    fast = run(TorchEngine(load_base_model(model, "bfloat16", "cpu")), adapters)
    monkeypatch.setattr(native_runner, "native", lambda: Native(None, "none here"))
    base = load_base_model(model, "bfloat16", "cpu")
    assert not can_run_natively(base)
    slow = run(TorchEngine(base), adapters)
    pairs = [(fast[name].prompt_logprobs, slow[name].prompt_logprobs) for name in slow]
    a, b = (torch.tensor([x for pair in pairs for x in pair[side]]) for side in (0, 1))
    assert len(a) > 500 and (a - b).abs().mean() < 0.02


@pytest.mark.parametrize(
    "size", [{"head_dim": 16}, {"hidden_size": 80}, {"intermediate_size": 112}, {}]
)
def test_sizes_that_the_kernels_do_not_know_are_left_to_torch(
    tmp_path: Path, size: dict[str, int]
) -> None:
    model = build_tiny_model(tmp_path, **{"head_dim": 32, **size})
    assert can_run_natively(load_base_model(model, "bfloat16", "cpu")) == (not size)
    assert not can_run_natively(load_base_model(model, "float32", "cpu"))


def test_a_whole_number_is_a_temperature(tmp_path: Path) -> None:
    model = build_tiny_model(tmp_path, head_dim=32)
    adapter = store_adapter(tmp_path / "adapter", linear_shapes(model))
    engine = TorchEngine(load_base_model(model, "bfloat16", "cpu"))
    engine.submit([GenerationRequest("a", adapter, (5, 6), SamplingParams(2, 1), 0)])
    done: list[Generation] = []
    while engine.has_work:
        done += engine.step()
    assert len(done[0].ids) == 2 and not done[0].error
