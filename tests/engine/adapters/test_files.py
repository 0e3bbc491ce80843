"""Adapter files: PEFT reads what we write, and nothing malformed gets past the reader."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from engine.adapters.digest import adapter_digest
from engine.adapters.files import lora_names, read_adapter, write_adapter
from engine.adapters.initial import initial_adapter
from engine.errors import ArtifactError
from engine.models.architectures import LINEAR_MODULES
from tests.tiny import random_adapter

SHAPES = {"model.layers.0.self_attn.q_proj": (6, 4), "model.layers.0.mlp.up_proj": (8, 4)}
NAME_A, NAME_B = lora_names("model.layers.0.self_attn.q_proj")


def small() -> dict[str, np.ndarray]:
    return random_adapter(SHAPES, rank=2, seed=0)


def write(directory: Path, tensors: dict[str, np.ndarray], rank: int = 2) -> None:
    write_adapter(directory, tensors, rank=rank, alpha=4.0, target_modules=["q_proj", "up_proj"])


def test_what_is_written_is_read_back(tmp_path: Path) -> None:
    tensors = small()
    write(tmp_path, tensors)
    adapter = read_adapter(tmp_path)
    assert adapter.rank == 2 and adapter.scale == 2.0
    assert adapter.modules == sorted(SHAPES)
    assert adapter.tensors.keys() == tensors.keys()
    assert all((adapter.tensors[name] == tensors[name]).all() for name in tensors)
    assert adapter_digest(adapter.tensors) == adapter_digest(tensors)


def test_peft_applies_a_written_adapter_as_the_formula_says(
    tiny_model: Path, tmp_path: Path
) -> None:
    import torch
    from peft import PeftModel
    from transformers import AutoModelForCausalLM

    from engine.models.shapes import linear_shapes

    shapes = linear_shapes(tiny_model)
    tensors = random_adapter(shapes, rank=4, seed=1)
    write_adapter(tmp_path, tensors, rank=4, alpha=12.0, target_modules=LINEAR_MODULES)
    ids = torch.arange(20, 40)[None]
    merged = AutoModelForCausalLM.from_pretrained(tiny_model, dtype=torch.float32)
    for module in shapes:
        a, b = (torch.from_numpy(tensors[name]) for name in lora_names(module))
        merged.get_submodule(module).weight.data += 3.0 * b @ a
    base = AutoModelForCausalLM.from_pretrained(tiny_model, dtype=torch.float32)
    with torch.no_grad():
        plain, wanted = base(ids).logits, merged(ids).logits
        got = PeftModel.from_pretrained(base, str(tmp_path))(ids).logits
    torch.testing.assert_close(got, wanted, rtol=0, atol=1e-4)
    assert (got - plain).abs().max() > 0.1


def test_the_initial_adapter_is_kaiming_uniform_and_zero() -> None:
    shapes = {"model.layers.0.mlp.down_proj": (10, 400), "model.layers.0.mlp.up_proj": (400, 10)}
    tensors = initial_adapter(shapes, rank=16, target_modules=["down_proj"], seed=3)
    name_a, name_b = lora_names("model.layers.0.mlp.down_proj")
    assert tensors.keys() == {name_a, name_b}
    a, b = tensors[name_a], tensors[name_b]
    assert a.shape == (16, 400) and b.shape == (10, 16)
    assert a.dtype == b.dtype == np.float32
    assert not b.any()
    assert np.abs(a).max() <= 1 / 20  # bound 1 / sqrt(400)
    assert abs(a.std() - 0.05 / np.sqrt(3)) < 0.001 and abs(a.mean()) < 0.002


def test_the_initial_adapter_depends_on_the_seed_alone() -> None:
    first, again = (initial_adapter(SHAPES, 2, ["q_proj"], seed=5) for _ in range(2))
    other = initial_adapter(SHAPES, 2, ["q_proj"], seed=6)
    assert adapter_digest(first) == adapter_digest(again) != adapter_digest(other)


def test_an_initial_adapter_without_layers_is_refused() -> None:
    with pytest.raises(ValueError, match="none of the layers o_proj"):
        initial_adapter(SHAPES, 2, ["o_proj"], seed=0)


def test_the_digest_is_sha256_over_what_its_docstring_says() -> None:
    import hashlib

    tensors = {"b": np.zeros((1, 2), np.float32), "a": np.array([1.0], np.float32)}
    stream = b"a\0<f4\x001\0" + b"\x00\x00\x80\x3f" + b"b\0<f4\x001,2\0" + bytes(8)
    assert adapter_digest(tensors) == hashlib.sha256(stream).hexdigest()


@pytest.mark.parametrize("change", ["value", "name", "shape", "dtype"])
def test_the_digest_changes_with_any_property(change: str) -> None:
    tensors = {"a": np.ones((2, 3), np.float32)}
    changed = {
        "value": {"a": np.full((2, 3), np.nextafter(np.float32(1), np.float32(2)))},
        "name": {"b": np.ones((2, 3), np.float32)},
        "shape": {"a": np.ones((3, 2), np.float32)},
        "dtype": {"a": np.ones((2, 3), np.float64)},
    }
    assert adapter_digest(changed[change]) != adapter_digest(tensors)


def test_a_missing_directory_is_an_artifact_error(tmp_path: Path) -> None:
    with pytest.raises(ArtifactError, match="cannot be read"):
        read_adapter(tmp_path / "nowhere")


def test_truncated_weights_are_an_artifact_error(tmp_path: Path) -> None:
    write(tmp_path, small())
    weights = tmp_path / "adapter_model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-8])
    with pytest.raises(ArtifactError, match="cannot be read"):
        read_adapter(tmp_path)


@pytest.mark.parametrize(
    ("tensors", "problem"),
    [
        ({NAME_A: small()[NAME_A]}, "only one of its two weights"),
        ({**small(), NAME_B: np.full((6, 2), np.nan, np.float32)}, "not finite"),
        ({**small(), NAME_B: np.zeros((6, 2), np.float64)}, "finite float32"),
        ({**small(), NAME_B: np.zeros((6, 3), np.float32)}, "not of rank 2"),
        ({**small(), "evil": np.zeros(1, np.float32)}, "not the name of a LoRA weight"),
    ],
)
def test_malformed_weights_are_refused(
    tmp_path: Path, tensors: dict[str, np.ndarray], problem: str
) -> None:
    write(tmp_path, small())
    save_file(tensors, tmp_path / "adapter_model.safetensors")
    with pytest.raises(ArtifactError, match=problem):
        read_adapter(tmp_path)


@pytest.mark.parametrize("extra", [{"use_dora": True}, {"rank_pattern": {"q": 4}}, {"bias": "all"}])
def test_more_than_plain_lora_is_refused(tmp_path: Path, extra: dict[str, object]) -> None:
    write(tmp_path, small())
    file = tmp_path / "adapter_config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | extra))
    with pytest.raises(ArtifactError, match="more than plain LoRA"):
        read_adapter(tmp_path)


def test_files_digest_and_initial_never_import_torch() -> None:
    modules = "engine.adapters.files, engine.adapters.digest, engine.adapters.initial"
    code = f"import {modules}, sys; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
