"""The trainer: one policy update of one task at a time, on a base model that all tasks share.

Each task has its own adapter, moments and schedule; nothing of one step is seen by the next but
through the files (or the resident copy of the same bits). Invariant: a refused step writes nothing
and changes no state.
"""

from __future__ import annotations

import math
import os
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from ..adapters.canary import MAX_DIFFERENCE, Canary, canary_ids, write_canary
from ..adapters.digest import adapter_digest
from ..adapters.files import Adapter, lora_names, read_adapter, write_adapter
from ..adapters.linear import adapter_applied, install_lora
from ..config import TaskConfig
from ..errors import TrainingError
from ..models.load import LoadedModel
from ..types import AdapterRef, Trajectory, unpack_floats, unpack_ids
from .advantages import Advantages, group_advantages
from .batch import MicroBatch, Row, Sample, micro_batches, rows_of, to_tensors
from .checks import check_trajectories, require_fresh
from .logprobs import token_logprobs
from .losses import LOSSES, clipped_surrogate, k3
from .metrics import PassTotals, batch_metrics, named_by_staleness
from .state import TrainingState

Progress = Callable[[int, int], None]
"""(micro-batches done, of how many)."""


@dataclass(frozen=True)
class StepResult:
    """A new policy version, written to disk and not yet committed."""

    digest: str  # of the new adapter
    files: tuple[Path, ...]  # adapter_config.json, adapter_model.safetensors, state, canary
    metrics: dict[str, float]


class Trainer:
    """Holds the frozen base model and the most recent states. Not thread-safe."""

    def __init__(self, base: LoadedModel, max_tokens: int = 512, max_resident: int = 8) -> None:
        """max_tokens: of a micro-batch, padding included; max_resident: states kept in memory."""
        self._base = base
        self._max_tokens = max_tokens
        self._max_resident = max_resident
        self._layers = install_lora(base.model)
        self._canary_ids = canary_ids(base.path)
        self._resident: OrderedDict[tuple[str, int, str], TrainingState] = OrderedDict()

    def train_step(
        self,
        task: str,
        config: TaskConfig,
        version: int,
        adapter: str | os.PathLike[str],
        state: str | os.PathLike[str] | None,
        groups: Sequence[Sequence[Trajectory]],
        out_dir: str | os.PathLike[str],
        digest: str | None = None,
        progress: Progress | None = None,
        policy: AdapterRef | None = None,
    ) -> StepResult:
        """Make version `version` + 1 of the task from the groups that `policy` generated.

        adapter: directory of `version`'s adapter; state: its training state (file or directory),
        None for version 0; digest: the adapter's, as committed; without it the adapter is read
        to know it, with it nothing is read that is resident; policy: `version` itself, if absent,
        or an older version, no older than max_staleness. Writes adapter and state to out_dir,
        synced. Raises: TrainingError if a trajectory is not of `policy` or a number is not
        finite; ArtifactError if a file cannot be read or written.
        """
        started = time.monotonic()
        digest = digest or adapter_digest(read_adapter(adapter).tensors)
        ref = AdapterRef(task, version, digest, os.fspath(adapter))
        trajectories = [trajectory for group in groups for trajectory in group]
        policy = policy or ref
        require_fresh(policy.version, version, config.max_staleness)
        check_trajectories(trajectories, policy, version, self._base.config.vocab_size)
        advantages = group_advantages(
            [[t.reward for t in group] for group in groups], config.scale_rewards
        )
        metrics = batch_metrics(groups, advantages)
        samples = training_samples(groups, advantages, config)
        current = self._take_state(ref, config, state)
        metrics |= self._update(current, samples, config, version, progress)
        metrics = named_by_staleness(metrics, version - policy.version)
        new_digest, files = self._write(current, config, out_dir)
        self._keep_state((task, version + 1, new_digest), current)
        metrics["time/train_s"] = time.monotonic() - started
        return StepResult(new_digest, files, metrics)

    def _update(
        self,
        state: TrainingState,
        samples: Sequence[Sample],
        config: TaskConfig,
        version: int,
        progress: Progress | None,
    ) -> dict[str, float]:
        """One gradient over all samples, one update; without samples the weights stay."""
        batches = micro_batches(rows_of(samples, self._max_tokens), self._max_tokens)
        totals = PassTotals()
        for done, rows in enumerate(batches):
            self._accumulate(state, to_tensors(rows, self._base.device), config, totals)
            if progress:
                progress(done + 1, len(batches))
        norm = state.clip_gradient(config.max_grad_norm)
        if not (math.isfinite(totals.loss) and math.isfinite(norm)):
            raise TrainingError(
                f"The loss ({totals.loss}) or the gradient norm ({norm}) is not a finite number."
                " The step was refused and nothing was changed; lower the learning rate."
            )
        rate = config.learning_rate_at(version)
        if batches:
            state.update(rate, config.weight_decay)
        return totals.token_means(config.beta > 0) | {
            "loss": totals.loss,
            "grad_norm": norm,
            "learning_rate": rate,
            "tokens": totals.tokens,
            "tokens_computed": totals.computed,
            "no_gradient": float(not batches),
        }

    def _accumulate(
        self, state: TrainingState, batch: MicroBatch, config: TaskConfig, totals: PassTotals
    ) -> None:
        """Add one micro-batch's gradient to the state's, and its figures to the totals."""
        with torch.no_grad():
            base = self._logprobs(batch, config.temperature)[0] if config.beta > 0 else None
        with adapter_applied(self._layers, state.weights, state.scale):
            logprobs, entropy = self._logprobs(batch, config.temperature)
            surrogate = clipped_surrogate(
                logprobs,
                batch.sampled,
                batch.advantages,
                batch.weights,
                config.epsilon,
                config.epsilon_high,
            )
            loss = surrogate.loss
            if base is not None:
                divergence = k3(logprobs, base)
                loss = loss + config.beta * (batch.weights * divergence).sum()
                totals.kl += divergence.sum().item()
            loss.backward()
        totals.loss += loss.item()
        totals.tokens += len(batch.targets)
        totals.computed += batch.ids.numel()
        totals.entropy += float(entropy.sum())
        difference = (logprobs.detach() - batch.sampled).clamp(-MAX_DIFFERENCE, MAX_DIFFERENCE)
        totals.mismatch += float(k3(torch.zeros_like(difference), difference).sum())
        totals.difference += float(difference.abs().sum())
        totals.max_difference = max(totals.max_difference, float(difference.abs().max()))
        totals.clipped_low += surrogate.clipped_low
        totals.clipped_high += surrogate.clipped_high

    def _logprobs(self, batch: MicroBatch, temperature: float) -> tuple[torch.Tensor, torch.Tensor]:
        """Log-probs of the trained tokens, and entropies, under the adapter that is applied now;
        under the base model if none is."""
        hidden = self._base.model.model(
            input_ids=batch.ids,
            attention_mask=batch.mask,
            position_ids=batch.positions,
            use_cache=False,
        ).last_hidden_state
        picked = hidden.flatten(0, 1)[batch.sources]
        head = self._base.model.lm_head.weight
        return token_logprobs(picked, head, batch.targets, temperature)

    def _take_state(
        self, adapter: AdapterRef, config: TaskConfig, path: str | os.PathLike[str] | None
    ) -> TrainingState:
        """The resident state, or the one on disk: the same bits. It stops being resident, because
        the step changes it."""
        resident = self._resident.pop((adapter.task, adapter.version, adapter.digest), None)
        if resident is not None:
            return resident
        loaded = read_adapter(adapter.path)
        if adapter_digest(loaded.tensors) != adapter.digest:
            raise TrainingError(
                f"The adapter in {adapter.path} does not have digest {adapter.digest[:12]}…:"
                " it was changed or damaged after it was committed."
            )
        self._require_fit(loaded, config)
        state = TrainingState(loaded, self._base.device)
        if path is not None:
            state.restore(path)
        return state

    def _require_fit(self, adapter: Adapter, config: TaskConfig) -> None:
        """Raises: TrainingError if the adapter is not one of this base model and this task."""
        if (adapter.rank, adapter.alpha) != (config.lora_rank, config.lora_alpha):
            raise TrainingError(
                f"The adapter has rank {adapter.rank} and alpha {adapter.alpha:g}, the task"
                f" {config.lora_rank} and {config.lora_alpha:g}."
            )
        for module in adapter.modules:
            a, b = (adapter.tensors[name] for name in lora_names(module))
            layer = self._layers.get(module)
            if layer is None or layer.weight.shape != (b.shape[0], a.shape[1]):
                raise TrainingError(f"The adapter's {module} does not fit the base model.")

    def _keep_state(self, key: tuple[str, int, str], state: TrainingState) -> None:
        self._resident[key] = state
        while len(self._resident) > self._max_resident:
            self._resident.popitem(last=False)

    def _write(
        self, state: TrainingState, config: TaskConfig, out_dir: str | os.PathLike[str]
    ) -> tuple[str, tuple[Path, ...]]:
        """All files to disk, if all is finite; returns the adapter's digest and the files."""
        if not (state.values.isfinite().all() and state.exp_avg_sq.isfinite().all()):
            raise TrainingError(
                "The update made weights that are not finite numbers. The step was refused and"
                " nothing was written; lower the learning rate."
            )
        canary = self._canary(state)
        arrays = state.arrays()
        files = write_adapter(
            out_dir,
            arrays,
            rank=config.lora_rank,
            alpha=config.lora_alpha,
            target_modules=config.target_modules,
            base_model=self._base.path.name,
        )
        return adapter_digest(arrays), (*files, state.save(out_dir), write_canary(out_dir, canary))

    @torch.no_grad()
    def _canary(self, state: TrainingState) -> Canary:
        """The canary under a state's adapter, by the same pass that training makes.

        Raises: TrainingError if a log-prob is not finite.
        """
        first, *rest = self._canary_ids
        sample = Sample((first,), tuple(rest), (0.0,) * len(rest), b"\1" * len(rest), 0.0, 0.0)
        batch = to_tensors([Row(sample.prompt, (sample,))], self._base.device)
        base = self._logprobs(batch, temperature=1.0)[0]
        with adapter_applied(self._layers, state.weights, state.scale):
            logprobs = self._logprobs(batch, temperature=1.0)[0]
        if not logprobs.isfinite().all():
            raise TrainingError(
                "Under the new weights log-probs are not finite numbers. The step was refused and"
                " nothing was written; lower the learning rate."
            )
        return Canary(self._canary_ids, tuple(logprobs.tolist()), tuple(base.tolist()))


def training_samples(
    groups: Sequence[Sequence[Trajectory]], advantages: Advantages, config: TaskConfig
) -> list[Sample]:
    """The graded trajectories that can move a weight, with their weights in the loss.

    Trajectories without advantage are left out unless beta holds them to the base model, but they
    count in the averages: a group that teaches nothing makes the step smaller.
    """
    graded = [
        (trajectory, value)
        for group, values in zip(groups, advantages.values_P_G, strict=True)
        for trajectory, value in zip(group, values, strict=True)
        if trajectory.reward is not None and trajectory.num_generated
    ]
    lengths = [trajectory.num_generated for trajectory, _ in graded]
    weights = LOSSES[config.loss_type](lengths, config.max_completion_length)
    return [
        _sample(trajectory, value, weight)
        for (trajectory, value), weight in zip(graded, weights, strict=True)
        if value != 0.0 or config.beta > 0
    ]


def _sample(trajectory: Trajectory, advantage: float, weight: float) -> Sample:
    ids = tuple(unpack_ids(trajectory.ids))
    return Sample(
        prompt=ids[: trajectory.prompt_length],
        ids=ids[trajectory.prompt_length :],
        logprobs=tuple(unpack_floats(trajectory.logprobs)),
        mask=trajectory.mask,
        advantage=advantage,
        weight=weight,
    )
