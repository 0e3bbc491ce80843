"""Training state: AdamW as torch has it, and the same bits after a trip to disk."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from engine.adapters.files import Adapter
from engine.errors import ArtifactError
from engine.training.state import TrainingState
from tests.tiny import random_adapter

SHAPES = {"model.layers.0.self_attn.q_proj": (6, 4), "model.layers.0.mlp.up_proj": (8, 4)}
CPU = torch.device("cpu")


def make() -> TrainingState:
    return TrainingState(Adapter(random_adapter(SHAPES, 2, 0), 2, 4.0, ("q_proj",)), CPU)


def step(state: TrainingState, seed: int) -> None:
    torch.manual_seed(seed)
    state.gradient.copy_(torch.randn_like(state.gradient))
    state.update(1e-2, 0.1)


def test_updates_are_those_of_torch_adamw() -> None:
    state = make()
    reference = {n: w.detach().clone().requires_grad_() for n, w in state.weights.items()}
    optimizer = torch.optim.AdamW(reference.values(), lr=1e-2, weight_decay=0.1)
    for seed in range(5):
        torch.manual_seed(seed)
        for name, weight in state.weights.items():
            gradient = torch.randn_like(weight)
            reference[name].grad = gradient.clone()
            assert weight.grad is not None
            weight.grad.copy_(gradient)
        optimizer.step()
        state.update(1e-2, 0.1)
    for name, weight in reference.items():
        np.testing.assert_allclose(state.arrays()[name], weight.detach(), rtol=1e-6, atol=1e-7)


def test_autograd_adds_into_the_flat_gradient() -> None:
    state = make()
    for weight in state.weights.values():
        (weight * weight).sum().backward()
    torch.testing.assert_close(state.gradient, 2 * state.values)


def test_the_gradient_is_scaled_down_to_the_norm_and_never_up() -> None:
    state = make()
    state.gradient[:2] = torch.tensor([3.0, 4.0])
    assert state.clip_gradient(10.0) == 5.0 and float(state.gradient.norm()) == 5.0
    assert state.clip_gradient(0.5) == 5.0
    assert state.gradient[:2].tolist() == pytest.approx([0.3, 0.4])


def test_a_saved_state_goes_on_bit_for_bit(tmp_path: Path) -> None:
    state = make()
    step(state, 0)
    state.save(tmp_path)
    tensors = {name: array.copy() for name, array in state.arrays().items()}
    again = TrainingState(Adapter(tensors, 2, 4.0, ("q_proj",)), CPU)
    again.restore(tmp_path)
    for seed in (1, 2):
        step(state, seed)
        step(again, seed)
    for name in ("values", "exp_avg", "exp_avg_sq"):
        assert torch.equal(getattr(state, name), getattr(again, name))


def test_a_damaged_or_foreign_state_is_refused(tmp_path: Path) -> None:
    state = make()
    file = state.save(tmp_path)
    other = TrainingState(Adapter(random_adapter(SHAPES, 3, 0), 3, 4.0, ("q_proj",)), CPU)
    with pytest.raises(ArtifactError, match="of another adapter"):
        other.restore(file)
    file.write_bytes(file.read_bytes()[:-4])
    with pytest.raises(ArtifactError, match="cannot be read"):
        state.restore(file)
    with pytest.raises(ArtifactError, match="cannot be read"):
        state.restore(tmp_path / "nowhere")
