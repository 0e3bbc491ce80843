"""A task's hyper-parameters, under the names that the field uses, with units and ranges.

`parse_config` is the only way from a person's mapping to a `TaskConfig`: aliases of other tools are
accepted where their meaning is the same, refused with the reason where it is not, and an unknown
key names its nearest known one. Errors come all at once, by field.
"""

from __future__ import annotations

import difflib
import math
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from .errors import SpecError

LINEAR_MODULES = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")


def _setting(default: Any, help: str, **limits: Any) -> Any:
    """A field with its help text and `low`, `high` (inclusive), `above` (exclusive), `choices`."""
    return field(default=default, metadata={"help": help, **limits})


@dataclass(frozen=True)
class TaskConfig:
    """All hyper-parameters of a task. Field metadata holds help and limits for forms and docs."""

    batch_size: int = _setting(8, "prompts a step", low=1, high=512)
    group_size: int = _setting(8, "trajectories of each prompt", low=2, high=128)
    max_steps: int = _setting(40, "policy updates until the task ends", low=1, high=100_000)
    max_prompt_length: int = _setting(
        512, "tokens of a prompt, chat template included", low=1, high=32_768
    )
    max_completion_length: int = _setting(
        64, "tokens generated at most a trajectory", low=1, high=32_768
    )
    overlong_policy: str = _setting(
        "skip",
        "prompts longer than max_prompt_length: skip them, or fail the task",
        choices=("skip", "fail"),
    )
    temperature: float = _setting(1.0, "sampling temperature", above=0.0, high=5.0)
    top_p: float = _setting(1.0, "must be 1 for training", low=0.0, high=1.0)
    top_k: int = _setting(0, "must be 0 (off) for training", low=0, high=1_000_000)
    learning_rate: float = _setting(1e-4, "AdamW step size", above=0.0, high=1.0)
    lr_scheduler_type: str = _setting(
        "constant",
        "learning rate over steps, after warm-up",
        choices=("constant", "linear", "cosine"),
    )
    warmup_steps: int = _setting(0, "steps of linear warm-up", low=0, high=100_000)
    weight_decay: float = _setting(0.0, "AdamW decoupled weight decay", low=0.0, high=10.0)
    max_grad_norm: float = _setting(
        1.0, "gradient norm above which it is scaled down", above=0.0, high=1e6
    )
    loss_type: str = _setting(
        "dapo",
        "dapo: mean over all tokens; grpo: mean over sequences; dr_grpo: sum over max_completion_length",
        choices=("grpo", "dr_grpo", "dapo"),
    )
    epsilon: float = _setting(0.2, "ratio is clipped below 1 - epsilon", above=0.0, high=1.0)
    epsilon_high: float = _setting(
        0.2, "ratio is clipped above 1 + epsilon_high", above=0.0, high=10.0
    )
    beta: float = _setting(
        0.0, "weight of the KL to the base model in the loss; 0 skips it", low=0.0, high=10.0
    )
    scale_rewards: str = _setting(
        "group",
        "divide advantages by the standard deviation of the group, of the batch, or not",
        choices=("group", "batch", "none"),
    )
    lora_rank: int = _setting(16, "rank of the adapter", low=1, high=512)
    lora_alpha: float = _setting(
        32.0, "adapter scale is lora_alpha / lora_rank", above=0.0, high=4096.0
    )
    target_modules: tuple[str, ...] = _setting(
        LINEAR_MODULES, "linear layers that get an adapter", choices=LINEAR_MODULES
    )
    max_staleness: int = _setting(0, "0: strictly on-policy (the only value so far)", low=0, high=0)
    checkpoint_interval: int = _setting(
        10, "every so many versions one is kept for good; 0: only the last", low=0, high=100_000
    )
    keep_last: int = _setting(2, "most recent versions kept", low=1, high=100)
    seed: int = _setting(
        0, "of prompt order, sampling and adapter initialisation", low=0, high=2**31 - 1
    )

    def to_json(self) -> dict[str, Any]:
        """A mapping that `parse_config` reads back to an equal TaskConfig."""
        data = asdict(self)
        data["target_modules"] = list(self.target_modules)
        return data

    @property
    def sequences_per_step(self) -> int:
        return self.batch_size * self.group_size

    def learning_rate_at(self, step: int) -> float:
        """Learning rate of `step` (0 … max_steps - 1)."""
        if step < self.warmup_steps:
            return self.learning_rate * (step + 1) / self.warmup_steps
        if self.lr_scheduler_type == "constant":
            return self.learning_rate
        progress = (step - self.warmup_steps) / max(1, self.max_steps - self.warmup_steps)
        if self.lr_scheduler_type == "linear":
            return self.learning_rate * (1 - progress)
        return self.learning_rate * 0.5 * (1 + math.cos(math.pi * progress))


FIELDS = {f.name: f for f in fields(TaskConfig)}

ALIASES = {
    "groups_per_batch": "batch_size",
    "num_generations": "group_size",
    "rollout.n": "group_size",
    "rollouts_per_example": "group_size",
    "responseCandidatesCount": "group_size",
    "trainingSamplePerPrompt": "group_size",
    "total_training_steps": "max_steps",
    "max_tokens": "max_completion_length",
    "max_response_length": "max_completion_length",
    "maxOutputTokens": "max_completion_length",
    "inferenceMaxTokens": "max_completion_length",
    "max_input_tokens": "max_prompt_length",
    "maxPromptLength": "max_prompt_length",
    "sampling.temperature": "temperature",
    "topP": "top_p",
    "topK": "top_k",
    "optim.lr": "learning_rate",
    "lr": "learning_rate",
    "learningRate": "learning_rate",
    "r": "lora_rank",
    "loraRank": "lora_rank",
    "loss_mode": "loss_type",
    "clip_ratio_low": "epsilon",
    "clip_ratio_high": "epsilon_high",
    "eps_clip_higher": "epsilon_high",
    "kl_loss_coef": "beta",
    "klBeta": "beta",
    "save_total_limit": "keep_last",
    "save_steps": "checkpoint_interval",
    "save_freq": "checkpoint_interval",
    "save_every": "checkpoint_interval",
}

REFUSED_ALIASES = {
    "train_batch_size": "some tools count prompts here, some completions; give batch_size in prompts",
    "generation_batch_size": "counts completions; give batch_size = generation_batch_size / group_size",
    "batchSizeSamples": "counts samples; give batch_size in prompts",
    "learning_rate_multiplier": "has no base here; give learning_rate",
    "compute_multiplier": "cannot be converted; give batch_size, group_size and max_steps",
    "vllm_max_model_length": "is a total; give max_prompt_length and max_completion_length",
    "maxContextLength": "is a total; give max_prompt_length and max_completion_length",
    "kl_penalty_coef": "is a KL in the reward, beta is one in the loss; give beta if that is meant",
    "num_train_epochs": "give max_steps",
    "epochs": "give max_steps",
}


def parse_config(values: dict[str, Any]) -> TaskConfig:
    """A person's settings to a checked TaskConfig; what is absent takes its default.

    Numbers may come as text ("1e-4"). Raises: SpecError with every wrong field at once.
    """
    errors: dict[str, list[str]] = {}
    parsed: dict[str, Any] = {}
    for key, value in values.items():
        name = ALIASES.get(key, key)
        if key in REFUSED_ALIASES:
            errors.setdefault(key, []).append(f"{key} {REFUSED_ALIASES[key]}.")
        elif name not in FIELDS:
            errors.setdefault(key, []).append(_unknown(key))
        elif name in parsed:
            errors.setdefault(name, []).append(f"Given twice: {key} means {name}.")
        else:
            try:
                parsed[name] = _convert(name, value)
            except ValueError as error:
                errors.setdefault(name, []).append(str(error))
    if parsed.get("top_p", 1.0) != 1.0 or parsed.get("top_k", 0) != 0:
        name = "top_p" if parsed.get("top_p", 1.0) != 1.0 else "top_k"
        errors.setdefault(name, []).append(
            "Must be off for training (top_p 1, top_k 0): a truncated distribution's log-probs are not"
            " those of the policy that the loss corrects for. Use temperature."
        )
    if errors:
        raise SpecError(errors)
    return TaskConfig(**parsed)


def _unknown(key: str) -> str:
    near = difflib.get_close_matches(key, [*FIELDS, *ALIASES], n=1, cutoff=0.5)
    hint = f" Did you mean {ALIASES.get(near[0], near[0])}?" if near else ""
    return f"There is no setting {key!r}.{hint}"


def _convert(name: str, value: Any) -> Any:
    """One value to its field's type, within its limits. Raises ValueError with the full sentence."""
    spec = FIELDS[name]
    limits = spec.metadata
    if name == "target_modules":
        return _modules(value)
    if "choices" in limits:
        if value not in limits["choices"]:
            raise ValueError(f"Must be one of {', '.join(limits['choices'])}, not {value!r}.")
        return value
    number = _number(value, whole=isinstance(spec.default, int))
    if "above" in limits and not number > limits["above"]:
        raise ValueError(f"Must be above {limits['above']:g}, not {number:g}.")
    if "low" in limits and number < limits["low"]:
        raise ValueError(f"Must be at least {limits['low']:g}, not {number:g}.")
    if number > limits["high"]:
        raise ValueError(f"Must be at most {limits['high']:g}, not {number:g}.")
    return number


def _number(value: Any, *, whole: bool) -> Any:
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        raise ValueError(f"Must be a number, not {value!r}.")
    try:
        number = float(value)
    except (ValueError, OverflowError):
        raise ValueError(f"Must be a number, not {value!r}.") from None
    if not math.isfinite(number):
        raise ValueError(f"Must be a finite number, not {value!r}.")
    if whole and number != int(number):
        raise ValueError(f"Must be a whole number, not {value!r}.")
    return int(number) if whole else number


def _modules(value: Any) -> tuple[str, ...]:
    if value == "all-linear":
        return LINEAR_MODULES
    names = value.replace(",", " ").split() if isinstance(value, str) else value
    if not isinstance(names, (list, tuple)) or not names:
        raise ValueError("Must be a list of layer names, or all-linear.")
    wrong = [str(n) for n in names if n not in LINEAR_MODULES]
    if wrong:
        raise ValueError(
            f"Unknown layers {', '.join(wrong)}; there are {', '.join(LINEAR_MODULES)}."
        )
    return tuple(n for n in LINEAR_MODULES if n in names)
