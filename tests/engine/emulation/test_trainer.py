from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from engine.adapters.digest import adapter_digest
from engine.adapters.files import read_adapter, write_adapter
from engine.config import parse_config
from engine.emulation.script import Script
from engine.emulation.trainer import EmulatedTrainer
from engine.errors import TrainingError
from engine.simulation.performance.cost_models import EngineCost
from engine.types import Trajectory, TrajectoryKey

NAME = "base_model.model.model.layers.0.self_attn.q_proj.lora_{}.weight"
SCRIPT = Script(EngineCost(1.0, 0.1, 10), pass_s={4: 2.5}, tokens={}, tools_s={}, scale=2.0)


@pytest.fixture
def adapter(tmp_path: Path) -> Path:
    tensors = {
        NAME.format("A"): np.ones((1, 4), np.float32),
        NAME.format("B"): np.zeros((4, 1), np.float32),
    }
    write_adapter(tmp_path / "0", tensors, rank=1, alpha=2.0, target_modules=["q_proj"])
    return tmp_path / "0"


def trajectory(reward: float | None, generated: int) -> Trajectory:
    key = TrajectoryKey("task", 0, "group", 1, 0)
    return Trajectory(key, 0, "digest", b"", 0, mask=b"\1" * generated, reward=reward)


def test_a_pass_takes_its_time_and_makes_another_readable_version(adapter: Path) -> None:
    slept: list[float] = []
    groups = [[trajectory(1.0, 3), trajectory(0.0, 5)], [trajectory(None, 2)]]
    out = adapter.parent / "1"
    result = EmulatedTrainer(SCRIPT, slept.append).train_step(
        task="task",
        config=parse_config({"seed": 4}),
        version=0,
        adapter=adapter,
        state=None,
        groups=groups,
        out_dir=out,
        digest="ignored",
    )
    assert slept == [5.0]
    before, after = read_adapter(adapter), read_adapter(out)
    assert result.digest == adapter_digest(after.tensors) != adapter_digest(before.tensors)
    assert (after.rank, after.alpha, after.target_modules) == (1, 2.0, ("q_proj",))
    assert result.metrics["reward"] == 0.5
    assert result.metrics["tokens"] == 10


def test_a_task_that_the_script_does_not_know_is_refused(adapter: Path) -> None:
    with pytest.raises(TrainingError, match="seed 5"):
        EmulatedTrainer(SCRIPT).train_step(
            "task", parse_config({"seed": 5}), 0, adapter, [], adapter.parent / "1"
        )
