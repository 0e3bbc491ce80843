"""A step's figures, under the names that the field uses. No torch.

`rollout_train_…` compare the log-probs that the engine reported with those of the trainer for the
same weights: what differs is arithmetic, or the wrong weights. In a batch of an older version most
of what differs is what was learned since, which the loss corrects for, so that such a batch has
`stale_…` in their place, and nothing judges them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..types import Trajectory
from .advantages import Advantages


@dataclass
class PassTotals:
    """Sums over the tokens of a training pass."""

    loss: float = 0.0
    tokens: int = 0  # trained tokens that went through the model
    computed: int = 0  # tokens that went through the model, prompts and padding included
    entropy: float = 0.0
    mismatch: float = 0.0  # k3 between sampled and trainer's log-probs
    difference: float = 0.0  # absolute, of the same
    max_difference: float = 0.0  # the largest of them, nats
    kl: float = 0.0  # k3 to the base model
    clipped_low: int = 0
    clipped_high: int = 0

    def token_means(self, has_kl: bool) -> dict[str, float]:
        count = max(self.tokens, 1)
        means = {
            "entropy": self.entropy / count,
            "rollout_train_kl": self.mismatch / count,
            "rollout_train_diff/mean": self.difference / count,
            "rollout_train_diff/max": self.max_difference,
            "clip_ratio/low": self.clipped_low / count,
            "clip_ratio/high": self.clipped_high / count,
        }
        return means | ({"kl": self.kl / count} if has_kl else {})


def batch_metrics(
    groups: Sequence[Sequence[Trajectory]], advantages: Advantages
) -> dict[str, float]:
    """What can be said of a step's trajectories before training. `rewards/…` over the graded."""
    trajectories = [t for group in groups for t in group]
    names = sorted({name for t in trajectories for name in t.rewards})
    by_name = {
        f"rewards/{name}/mean": _mean([t.rewards.get(name) for t in trajectories]) for name in names
    }
    return {
        "reward": _mean([t.reward for t in trajectories]),
        "reward_std": _mean(advantages.std_P),
        **by_name,
        "frac_reward_zero_std": _mean([float(is_zero) for is_zero in advantages.zero_variance_P]),
        "frac_ungraded": _mean([float(t.reward is None) for t in trajectories]),
        "completions/mean_length": _mean([float(t.num_generated) for t in trajectories]),
        "completions/clipped_ratio": _mean(
            [float(t.stop_reason == "length") for t in trajectories]
        ),
    }


MISMATCH = "rollout_train_"
STALE = "stale_"


def named_by_staleness(metrics: dict[str, float], staleness: int) -> dict[str, float]:
    """A step's figures with `staleness`, and what compares policies under the name that fits."""
    found = {**metrics, "staleness": float(staleness)}
    if not staleness:
        return found
    return {
        STALE + name.removeprefix(MISMATCH) if name.startswith(MISMATCH) else name: value
        for name, value in found.items()
    }


def _mean(values: Sequence[float | None]) -> float:
    """Of those that are not None; 0.0 if there is none."""
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else 0.0
