"""A task's hyper-parameters, under the names that the field uses, with units and ranges.

`parse_config` is the only way from a person's mapping to a `TaskConfig`: aliases of other tools are
accepted where their meaning is the same, refused with the reason where it is not, and an unknown
key names its nearest known one. Errors come all at once, by field.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from .environments import Environment, SingleTurn, dump_environment, parse_environment
from .errors import SpecError
from .models.architectures import LINEAR_MODULES
from .parameters import convert, parameter, shown, unknown

SINGLE_TURN = SingleTurn()


@dataclass(frozen=True)
class TaskConfig:
    """All hyper-parameters of a task. Field metadata holds help and limits for forms and docs."""

    batch_size: int = parameter(8, "prompts a step", low=1, high=512)
    group_size: int = parameter(8, "trajectories of each prompt", low=2, high=128)
    max_steps: int = parameter(40, "policy updates until the task ends", low=1, high=10_000)
    max_prompt_length: int = parameter(
        512, "tokens of a prompt, chat template included", low=1, high=32_768
    )
    max_completion_length: int = parameter(
        64, "tokens after the prompt at most a trajectory, in all turns", low=1, high=32_768
    )
    environment: Environment = field(
        default=SINGLE_TURN,
        metadata={
            "help": "what answers the policy between its turns: a name, or an object with type",
            "written": dump_environment(SINGLE_TURN),
        },
    )
    max_turns: int = parameter(
        3, "generations at most a trajectory, where the environment has turns", low=1, high=64
    )
    overlong_policy: str = parameter(
        "skip",
        "prompts longer than max_prompt_length: skip them, or fail the task",
        choices=("skip", "fail"),
    )
    max_ungraded: float = parameter(
        0.5,
        "share of a step's trajectories that may have no reward; more ends the step and pauses"
        " the task",
        low=0.0,
        high=1.0,
    )
    temperature: float = parameter(1.0, "sampling temperature", above=0.0, high=5.0)
    top_p: float = parameter(1.0, "must be 1 for training", low=0.0, high=1.0)
    top_k: int = parameter(0, "must be 0 (off) for training", low=0, high=1_000_000)
    learning_rate: float = parameter(1e-4, "AdamW step size", above=0.0, high=1.0)
    lr_scheduler_type: str = parameter(
        "constant",
        "learning rate over steps, after warm-up",
        choices=("constant", "linear", "cosine"),
    )
    warmup_steps: int = parameter(0, "steps of linear warm-up", low=0, high=100_000)
    weight_decay: float = parameter(0.0, "AdamW decoupled weight decay", low=0.0, high=10.0)
    max_grad_norm: float = parameter(
        1.0, "gradient norm above which it is scaled down", above=0.0, high=1e6
    )
    loss_type: str = parameter(
        "dapo",
        "dapo: mean over all tokens; grpo: mean over sequences;"
        " dr_grpo: sum over max_completion_length",
        choices=("grpo", "dr_grpo", "dapo"),
    )
    epsilon: float = parameter(0.2, "ratio is clipped below 1 - epsilon", above=0.0, high=1.0)
    epsilon_high: float = parameter(
        0.2, "ratio is clipped above 1 + epsilon_high", above=0.0, high=10.0
    )
    beta: float = parameter(
        0.0, "weight of the KL to the base model in the loss; 0 skips it", low=0.0, high=10.0
    )
    scale_rewards: str = parameter(
        "group",
        "divide advantages by the standard deviation of the group, of the batch, or not",
        choices=("group", "batch", "none"),
    )
    lora_rank: int = parameter(16, "rank of the adapter", low=1, high=512)
    lora_alpha: float = parameter(
        32.0, "adapter scale is lora_alpha / lora_rank", above=0.0, high=4096.0
    )
    target_modules: tuple[str, ...] = parameter(
        LINEAR_MODULES, "linear layers that get an adapter", choices=LINEAR_MODULES
    )
    max_staleness: int = parameter(
        0,
        "versions that the policy of a step may lie behind; more than 0 generates the next steps"
        " while one trains, 0 is strictly on-policy",
        low=0,
        high=8,
    )
    checkpoint_interval: int = parameter(
        10, "every so many versions one is kept for good; 0: only the last", low=0, high=100_000
    )
    keep_last: int = parameter(2, "most recent versions kept", low=1, high=100)
    seed: int = parameter(
        0, "of prompt order, sampling and adapter initialisation", low=0, high=2**31 - 1
    )

    def to_json(self) -> dict[str, Any]:
        """A mapping that `parse_config` reads back to an equal TaskConfig."""
        data = asdict(self)
        data["target_modules"] = list(self.target_modules)
        data["environment"] = dump_environment(self.environment)
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
    "train_batch_size": "counts prompts in some tools, completions in others;"
    " give batch_size in prompts",
    "generation_batch_size": "counts completions;"
    " give batch_size = generation_batch_size / group_size",
    "batchSizeSamples": "counts samples; give batch_size in prompts",
    "learning_rate_multiplier": "has no base here; give learning_rate",
    "compute_multiplier": "cannot be converted; give batch_size, group_size and max_steps",
    "vllm_max_model_length": "is a total; give max_prompt_length and max_completion_length",
    "maxContextLength": "is a total; give max_prompt_length and max_completion_length",
    "kl_penalty_coef": "is a KL in the reward, beta is one in the loss; give beta if that is meant",
    "num_train_epochs": "depends on the dataset's size; give max_steps",
    "epochs": "depends on the dataset's size; give max_steps",
}


MAX_SETTINGS = 100  # keys looked at; looking for near names costs time for each


def parse_config(values: dict[str, Any]) -> TaskConfig:
    """A person's settings to a checked TaskConfig; what is absent takes its default.

    Numbers may come as text ("1e-4"). Raises: SpecError with every wrong field at once.
    """
    if not isinstance(values, dict):
        raise SpecError({"config": ['Must be an object of settings, such as {"max_steps": 40}.']})
    if len(values) > MAX_SETTINGS:
        raise SpecError({"config": [f"Has {len(values)} keys; there are {len(FIELDS)} settings."]})
    errors: dict[str, list[str]] = {}
    parsed: dict[str, Any] = {}
    for key, value in values.items():
        name = ALIASES.get(key, key)
        try:
            parsed[name] = _checked(key, name, value, parsed)
        except SpecError as error:
            errors |= error.fields
        except ValueError as error:
            errors.setdefault(name, []).append(str(error))
    for name, text in _contradictions({**_defaults(), **parsed}):
        errors.setdefault(name, []).append(text)
    if errors:
        raise SpecError(errors)
    return TaskConfig(**parsed)


def _checked(key: str, name: str, value: Any, parsed: dict[str, Any]) -> Any:
    """The value of one setting. Raises ValueError with the full sentence."""
    if key in REFUSED_ALIASES:
        raise ValueError(f"{key} {REFUSED_ALIASES[key]}.")
    if name not in FIELDS:
        raise ValueError(unknown("setting", key, FIELDS, ALIASES))
    if name in parsed:
        raise ValueError(f"Given twice: {key} means {name}.")
    return _convert(name, value)


def _defaults() -> dict[str, Any]:
    return {name: spec.default for name, spec in FIELDS.items()}


def _contradictions(values: dict[str, Any]) -> list[tuple[str, str]]:
    """(field, message) of settings that do not go together."""
    found = [
        (
            name,
            "Must be off for training (top_p 1, top_k 0): a truncated distribution's log-probs are"
            " not those of the policy that the loss corrects for. Use temperature.",
        )
        for name, off in (("top_p", 1.0), ("top_k", 0))
        if values[name] != off
    ]
    observed = getattr(values["environment"], "max_observation_length", 0)
    if values["max_completion_length"] <= observed:
        found.append(
            (
                "max_completion_length",
                f"Counts the results of tools, too, of which a turn may have {observed} tokens"
                " (max_observation_length): no answer would fit after one. Raise this, to"
                f" {2 * observed} or more, or lower that.",
            )
        )
    if values["warmup_steps"] > values["max_steps"]:
        found.append(("warmup_steps", "Must not be larger than max_steps."))
    return found


def _convert(name: str, value: Any) -> Any:
    if name == "environment":
        return parse_environment(value)
    return _modules(value) if name == "target_modules" else convert(FIELDS[name], value)


def _modules(value: Any) -> tuple[str, ...]:
    if value == "all-linear":
        return LINEAR_MODULES
    names = value.replace(",", " ").split() if isinstance(value, str) else value
    if not isinstance(names, (list, tuple)) or not names:
        raise ValueError("Must be a list of layer names, or all-linear.")
    wrong = [shown(name) for name in names if name not in LINEAR_MODULES]
    if wrong:
        raise ValueError(
            f"Unknown layers {', '.join(wrong[:5])}; there are {', '.join(LINEAR_MODULES)}."
        )
    return tuple(name for name in LINEAR_MODULES if name in names)
