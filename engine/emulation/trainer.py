"""A trainer that sleeps: it takes a step's groups and writes the next version, as a real one does.

What it writes is the version before with its numbers changed a little, so that the digest is new.
No optimiser state, no canary: nobody could check what nobody computed.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ..adapters.digest import adapter_digest
from ..adapters.files import read_adapter, write_adapter
from ..config import TaskConfig
from ..errors import TrainingError
from ..types import Trajectory
from .script import Script


@dataclass(frozen=True)
class EmulatedResult:
    """As engine.training.trainer.StepResult, which needs torch."""

    digest: str
    files: tuple[Path, ...]
    metrics: dict[str, float]


class EmulatedTrainer:
    """`engine.training.trainer.Trainer` to those who use it."""

    def __init__(self, script: Script, sleep: Callable[[float], None] = time.sleep) -> None:
        self._script, self._sleep = script, sleep

    def train_step(
        self,
        task: str,
        config: TaskConfig,
        version: int,
        adapter: str | os.PathLike[str],
        groups: Sequence[Sequence[Trajectory]],
        out_dir: str | os.PathLike[str],
        **_: object,
    ) -> EmulatedResult:
        """Raises: TrainingError if the script does not know the task."""
        if config.seed not in self._script.pass_s:
            raise TrainingError(f"The emulation's script has no task with seed {config.seed}.")
        seconds = self._script.scale * self._script.pass_s[config.seed]
        self._sleep(seconds)
        digest, files = _write_next(adapter, out_dir)
        trajectories = [trajectory for group in groups for trajectory in group]
        rewards = [t.reward for t in trajectories if t.reward is not None]
        metrics = {
            "reward": sum(rewards) / len(rewards) if rewards else 0.0,
            "tokens": float(sum(t.num_generated for t in trajectories)),
            "time/train_s": seconds,
        }
        return EmulatedResult(digest, files, metrics)


def _write_next(
    before: str | os.PathLike[str], out_dir: str | os.PathLike[str]
) -> tuple[str, tuple[Path, ...]]:
    old = read_adapter(before)
    tensors = {name: tensor + np.float32(1e-3) for name, tensor in old.tensors.items()}
    files = write_adapter(
        out_dir,
        tensors,
        rank=old.rank,
        alpha=old.alpha,
        target_modules=old.target_modules,
    )
    return adapter_digest(tensors), tuple(files)
