"""The canary through the real engine, beside other sequences: it tells which adapter is served."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from engine.adapters.canary import Canary, Mismatch, compare, read_canary
from engine.adapters.digest import adapter_digest
from engine.adapters.files import write_adapter
from engine.adapters.initial import initial_adapter
from engine.config import TaskConfig
from engine.models.load import LoadedModel, load_base_model
from engine.models.shapes import linear_shapes
from engine.rollout.torch_engine import TorchEngine
from engine.training.trainer import Trainer
from engine.types import AdapterRef, GenerationRequest, SamplingParams
from tests.tiny import store_adapter

from .recorded import batch

CONFIG = TaskConfig(lora_rank=4, lora_alpha=8.0, max_completion_length=10, learning_rate=1e-2)


@pytest.fixture(scope="module")
def base(tiny_model: Path) -> LoadedModel:
    return load_base_model(tiny_model, "float32", "cpu")


def _train(base: LoadedModel, folder: Path, task: str) -> AdapterRef:
    shapes = linear_shapes(base.path)
    start = store_adapter(folder / task / "0", shapes, CONFIG.lora_rank, seed=len(task), task=task)
    out = folder / task / "1"
    groups = batch(start, 0)
    result = Trainer(base).train_step(task, CONFIG, 0, start.path, None, groups, out)
    return AdapterRef(task, 1, result.digest, str(out))


def _canary(adapter: AdapterRef) -> Canary:
    found = read_canary(adapter.path)
    assert found
    return found


def _scored(base: LoadedModel, *asked: tuple[AdapterRef, Canary]) -> list[Mismatch]:
    """Each canary under its adapter, in one batch with other sequences of the same adapters."""
    engine = TorchEngine(base, num_slots=16)
    sampling = SamplingParams(max_new_tokens=8)
    busy = [
        GenerationRequest(f"busy{n}", adapter, (3 + n, 4), sampling, seed=n)
        for n, (adapter, _) in enumerate(asked)
    ]
    engine.submit(busy)
    done = {generation.id: generation for generation in engine.step()}
    engine.submit(
        [
            GenerationRequest(
                f"canary{n}",
                adapter,
                canary.ids,
                replace(sampling, max_new_tokens=1),
                seed=0,
                needs_prompt_logprobs=True,
            )
            for n, (adapter, canary) in enumerate(asked)
        ]
    )
    while engine.has_work:
        done |= {generation.id: generation for generation in engine.step()}
    return [
        compare(canary, done[f"canary{n}"].prompt_logprobs) for n, (_, canary) in enumerate(asked)
    ]


def test_the_engine_serves_what_the_trainer_made(base: LoadedModel, tmp_path: Path) -> None:
    adapters = [_train(base, tmp_path, task) for task in ("sums", "others")]
    for found in _scored(base, *((adapter, _canary(adapter)) for adapter in adapters)):
        assert found.max < 2e-4
        assert found.base_mean > 0.1


def test_another_adapter_and_none_are_told_from_the_right_one(
    base: LoadedModel, tmp_path: Path
) -> None:
    ours, theirs = (_train(base, tmp_path, task) for task in ("sums", "others"))
    shapes = linear_shapes(base.path)
    tensors = initial_adapter(shapes, 4, ("q_proj",), seed=5)  # B is zero
    write_adapter(tmp_path / "none", tensors, rank=4, alpha=8.0, target_modules=("q_proj",))
    none = AdapterRef("none", 0, adapter_digest(tensors), str(tmp_path / "none"))
    wrong, missing = _scored(base, (theirs, _canary(ours)), (none, _canary(ours)))
    assert wrong.mean > 0.05
    assert missing.is_nearer_base
    assert missing.base_mean < 2e-4
