"""The whole loop on a tiny model: generate, reward, train, generate with the new adapter."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import pytest

from engine.adapters.digest import adapter_digest
from engine.adapters.files import write_adapter
from engine.adapters.initial import initial_adapter
from engine.config import TaskConfig
from engine.models.load import load_base_model
from engine.models.shapes import linear_shapes
from engine.rollout.torch_engine import TorchEngine
from engine.training.trainer import Trainer
from engine.types import AdapterRef, Generation, GenerationRequest, SamplingParams, Trajectory

from .recorded import trajectory

PROMPTS = [(20, 21), (30, 31, 32)]
NUM_STEPS = 40


@dataclass
class Task:
    """Is rewarded for each of its tokens that is one of the wanted."""

    name: str
    config: TaskConfig
    wanted: range
    adapter: AdapterRef
    rewards: list[float] = field(default_factory=list)

    def reward(self, generation: Generation) -> float:
        return sum(token in self.wanted for token in generation.ids) / len(generation.ids)

    def requests(self) -> list[GenerationRequest]:
        sampling = SamplingParams(8, self.config.temperature)
        return [
            GenerationRequest(f"{self.name}.{p}.{i}", self.adapter, ids, sampling, seed)
            for p, ids in enumerate(PROMPTS)
            for i in range(self.config.group_size)
            for seed in [self.adapter.version * 1000 + p * 100 + i]
        ]

    def group(self, prompt: int, done: dict[str, Generation]) -> list[Trajectory]:
        found = [done[f"{self.name}.{prompt}.{i}"] for i in range(self.config.group_size)]
        assert all(g.error == "" and g.digest == self.adapter.digest for g in found)
        return [
            trajectory(self.adapter, prompt, i, PROMPTS[prompt], g.ids, g.logprobs, self.reward(g))
            for i, g in enumerate(found)
        ]


@pytest.fixture
def tasks(tiny_model: Path, tmp_path: Path) -> list[Task]:
    """Two tasks of different wishes, ranks and target modules, from untrained adapters."""
    wide = TaskConfig(group_size=16, learning_rate=3e-2, lora_rank=4, lora_alpha=8.0)
    narrow = TaskConfig(
        group_size=12,
        learning_rate=1e-1,
        lora_rank=12,
        lora_alpha=96.0,
        target_modules=("o_proj", "down_proj"),
        loss_type="grpo",
    )
    wishes = [("wide", wide, range(10, 40)), ("narrow", narrow, range(200, 230))]
    return [
        Task(name, config, wanted, _initial(tiny_model, tmp_path / name / "0", name, config))
        for name, config, wanted in wishes
    ]


def _initial(model: Path, folder: Path, task: str, config: TaskConfig) -> AdapterRef:
    rank, targets = config.lora_rank, config.target_modules
    tensors = initial_adapter(linear_shapes(model), rank, targets, config.seed)
    write_adapter(folder, tensors, rank=rank, alpha=config.lora_alpha, target_modules=targets)
    return AdapterRef(task, 0, adapter_digest(tensors), str(folder))


def test_two_tasks_learn_different_things_on_one_base_model(
    tiny_model: Path, tmp_path: Path, tasks: list[Task]
) -> None:
    base = load_base_model(tiny_model, "float32", "cpu")
    trainer, engine = Trainer(base), TorchEngine(base, num_slots=24)
    for version in range(NUM_STEPS):
        engine.submit([request for task in tasks for request in task.requests()])
        done: dict[str, Generation] = {}
        while engine.has_work:
            done |= {generation.id: generation for generation in engine.step()}
        for task in tasks:
            out = tmp_path / task.name / str(version + 1)
            result = trainer.train_step(
                task.name,
                task.config,
                version,
                task.adapter.path,
                task.adapter.path if version else None,
                [task.group(prompt, done) for prompt in range(len(PROMPTS))],
                out,
                digest=task.adapter.digest,
            )
            assert result.metrics["rollout_train_kl"] < 1e-6  # the engine samples from this policy
            task.adapter = AdapterRef(task.name, version + 1, result.digest, str(out))
            task.rewards.append(result.metrics["reward"])
    for task in tasks:
        first, last = sum(task.rewards[:3]) / 3, sum(task.rewards[-3:]) / 3
        assert last > first + 0.2, task.rewards
