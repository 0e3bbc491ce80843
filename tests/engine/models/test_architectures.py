"""What can be trained, what the torch engine runs, and what is said of the rest."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from engine.errors import ModelError
from engine.models.architectures import LINEAR_MODULES, SUPPORTED, TRAINABLE, require_supported
from engine.models.load import load_base_model
from engine.models.shapes import linear_shapes
from engine.rollout.engines import EngineSpec, make_engine
from tests.tiny import build_tiny_model

LLAMA: dict[str, Any] = {"model_type": "llama", "hidden_act": "silu"}


@pytest.mark.parametrize("kind", TRAINABLE)
def test_what_is_trainable_is_as_the_trainer_needs_it(tmp_path: Path, kind: str) -> None:
    """The seven layers by name, and logits that are the output head on the last hidden state."""
    path = build_tiny_model(tmp_path / "model", model_type=kind)
    base = load_base_model(path, "float32", "cpu")
    assert {name.rpartition(".")[2] for name in linear_shapes(path)} == set(LINEAR_MODULES)
    ids = torch.tensor([[5, 9, 30, 200, 7]])
    with torch.no_grad():
        hidden = base.model.model(input_ids=ids, use_cache=False).last_hidden_state
        logits = base.model(input_ids=ids, use_cache=False).logits
    torch.testing.assert_close(hidden @ base.model.lm_head.weight.T, logits)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"model_type": "mistral"}, "type 'mistral' are not supported by the rollout engine torch"),
        ({"hidden_act": "gelu"}, "only silu"),
        ({"layer_types": ["full_attention", "sliding_attention"]}, "sliding-window"),
        ({"use_sliding_window": True}, "sliding-window"),
    ],
)
def test_what_only_vllm_generates_with_is_refused_with_that_offer(
    change: dict[str, Any], problem: str
) -> None:
    with pytest.raises(ModelError, match=problem) as refused:
        require_supported(LLAMA | change, "torch")
    assert "MARLAAS_ROLLOUT_ENGINE=vllm" in str(refused.value)
    require_supported(LLAMA | change, "vllm")


def test_what_cannot_be_trained_is_refused_whatever_generates() -> None:
    for engine in ("torch", "vllm"):
        with pytest.raises(ModelError, match="the trainer cannot"):
            require_supported({"model_type": "gpt2"}, engine)
        with pytest.raises(ModelError, match="Rotary positions"):
            require_supported(LLAMA | {"rope_scaling": {"type": "dynamic"}}, engine)


def test_the_torch_engine_is_not_made_for_what_it_cannot_run(tmp_path: Path) -> None:
    path = build_tiny_model(tmp_path / "model", model_type="mistral")
    with pytest.raises(ModelError, match="rollout engine vllm"):
        make_engine("torch", EngineSpec(str(path), "float32", "cpu"))
    with pytest.raises(ModelError, match="no rollout engine 'fast'"):
        make_engine("fast", EngineSpec(str(path)))
    assert set(SUPPORTED) < set(TRAINABLE)
