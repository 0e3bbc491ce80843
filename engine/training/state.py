"""A task's trainable numbers: adapter, gradient and AdamW's moments, each one flat vector.

The adapter's tensors are views of the vector, in the order of their names, so clipping, updating
and saving are a few operations whatever the number of layers. Invariant: a state saved and read
back is the same bits, so results do not depend on whether it stayed in memory.
"""

from __future__ import annotations

import math
import os
from pathlib import Path

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from ..adapters.files import Adapter, write_synced
from ..errors import ArtifactError

STATE_FILE = "training_state.safetensors"
BETA_1, BETA_2, EPSILON = 0.9, 0.999, 1e-8  # AdamW's usual ones


class TrainingState:
    """float32 throughout, on the trainer's device."""

    def __init__(self, adapter: Adapter, device: torch.device) -> None:
        """Fresh moments for an adapter."""
        self.scale = adapter.scale
        self._shapes = {name: adapter.tensors[name].shape for name in sorted(adapter.tensors)}
        flat = np.concatenate([adapter.tensors[name].ravel() for name in self._shapes])
        self.values = torch.from_numpy(flat).to(device)
        self.gradient = torch.zeros_like(self.values)
        self.exp_avg = torch.zeros_like(self.values)
        self.exp_avg_sq = torch.zeros_like(self.values)
        self.num_updates = 0
        self.weights = self._leaves()

    def _leaves(self) -> dict[str, Tensor]:
        """Each tensor as a view that autograd knows, its gradient a view of `gradient`."""
        leaves: dict[str, Tensor] = {}
        sizes = [math.prod(shape) for shape in self._shapes.values()]
        parts = zip(self.values.split(sizes), self.gradient.split(sizes), strict=True)
        for (name, shape), (values, gradient) in zip(self._shapes.items(), parts, strict=True):
            leaf = values.view(shape).detach().requires_grad_()
            leaf.grad = gradient.view(shape)
            leaves[name] = leaf
        return leaves

    def arrays(self) -> dict[str, np.ndarray]:
        """The adapter as numpy arrays (views on a CPU)."""
        return {name: leaf.detach().cpu().numpy() for name, leaf in self.weights.items()}

    def clip_gradient(self, max_norm: float) -> float:
        """Scale the gradient down to `max_norm`; returns its norm before."""
        norm = float(self.gradient.norm())
        if math.isfinite(norm) and norm > max_norm:
            self.gradient.mul_(max_norm / norm)
        return norm

    def update(self, learning_rate: float, weight_decay: float) -> None:
        """One AdamW update from `gradient`, which is zeroed. Source: arXiv:1711.05101."""
        self.num_updates += 1
        self.exp_avg.lerp_(self.gradient, 1 - BETA_1)
        self.exp_avg_sq.mul_(BETA_2).addcmul_(self.gradient, self.gradient, value=1 - BETA_2)
        correction_1 = 1 - BETA_1**self.num_updates
        correction_2 = 1 - BETA_2**self.num_updates
        deviation = (self.exp_avg_sq / correction_2).sqrt_().add_(EPSILON)
        self.values.mul_(1 - learning_rate * weight_decay)
        self.values.addcdiv_(self.exp_avg, deviation, value=-learning_rate / correction_1)
        self.gradient.zero_()

    def save(self, directory: str | os.PathLike[str]) -> Path:
        """Write moments and update count, synced. Raises: ArtifactError."""
        tensors = {
            "exp_avg": self.exp_avg,
            "exp_avg_sq": self.exp_avg_sq,
            "num_updates": torch.tensor(self.num_updates),
        }
        return write_synced(Path(directory) / STATE_FILE, save(tensors))

    def restore(self, path: str | os.PathLike[str]) -> None:
        """Take moments and update count from a file (or its directory). Raises: ArtifactError."""
        file = Path(path) / STATE_FILE if Path(path).is_dir() else Path(path)
        try:
            saved = load(file.read_bytes())
            moments = {name: saved[name] for name in ("exp_avg", "exp_avg_sq")}
            num_updates = int(saved["num_updates"])
        except (OSError, SafetensorError, KeyError, RuntimeError) as error:
            raise ArtifactError(f"The training state {file} cannot be read: {error}") from error
        for name, tensor in moments.items():
            if tensor.shape != self.values.shape or tensor.dtype != torch.float32:
                raise ArtifactError(f"The training state {file} is of another adapter ({name}).")
            getattr(self, name).copy_(tensor)
        self.num_updates = num_updates
