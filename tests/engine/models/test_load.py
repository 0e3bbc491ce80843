"""Loading base models, their shapes, and refusing what cannot be run."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from engine.errors import ModelError
from engine.models.load import load_base_model
from engine.models.shapes import linear_shapes
from engine.rollout.runner import linear_shapes_of
from tests.tiny import build_tiny_model


def test_a_loaded_model_is_frozen_and_of_the_asked_dtype(tiny_model: Path) -> None:
    base = load_base_model(tiny_model, "bfloat16", "cpu")
    assert not any(p.requires_grad for p in base.model.parameters())
    assert {p.dtype for p in base.model.parameters()} == {torch.bfloat16}
    assert not base.model.training


@pytest.mark.parametrize("kind", ["llama", "qwen2", "qwen3"])
def test_shapes_from_the_file_are_those_of_the_loaded_model(tmp_path: Path, kind: str) -> None:
    path = build_tiny_model(tmp_path / "model", model_type=kind, hidden_size=48)
    shapes = linear_shapes(path)
    assert shapes["model.layers.1.self_attn.k_proj"] == (32, 48)
    assert shapes["model.layers.0.mlp.down_proj"] == (48, 96)
    assert len(shapes) == 14
    assert shapes == linear_shapes_of(load_base_model(path, "float32", "cpu"))


def test_shapes_of_a_sharded_model_come_from_all_shards(tiny_model: Path, tmp_path: Path) -> None:
    base = load_base_model(tiny_model, "float32", "cpu")
    base.model.save_pretrained(tmp_path, max_shard_size="40KB")
    assert len(list(tmp_path.glob("*.safetensors"))) > 1
    assert linear_shapes(tmp_path) == linear_shapes(tiny_model)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"model_type": "gpt2"}, "supported types are llama, qwen2, qwen3"),
        ({"rope_parameters": {"rope_type": "dynamic", "factor": 2.0}}, "Rotary positions"),
        ({"quantization_config": {"bits": 4}}, "Quantised"),
    ],
)
def test_an_unsupported_model_is_refused_by_name(
    tiny_model: Path, tmp_path: Path, change: dict[str, Any], problem: str
) -> None:
    copy = Path(shutil.copytree(tiny_model, tmp_path / "copy"))
    config = json.loads((copy / "config.json").read_text())
    (copy / "config.json").write_text(json.dumps(config | change))
    for read in (linear_shapes, load_base_model):
        with pytest.raises(ModelError, match=problem):
            read(copy)


def test_what_is_no_model_is_refused_with_the_reason(tiny_model: Path, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="neither a directory"):
        load_base_model(tmp_path / "nowhere")
    copy = Path(shutil.copytree(tiny_model, tmp_path / "copy"))
    (copy / "model.safetensors").write_bytes(b"\xff" * 100)
    with pytest.raises(ModelError, match="not a readable safetensors file"):
        linear_shapes(copy)
    (copy / "model.safetensors").unlink()
    with pytest.raises(ModelError, match=r"lacks model\.safetensors"):
        linear_shapes(copy)
    with pytest.raises(ModelError, match="Unknown dtype 'int4'"):
        load_base_model(tiny_model, "int4")
