"""Which base models can be served and trained, decided from config.json. No torch.

Two lists, because two things must run a model. The trainer runs it through transformers: its
log-probs are those of `lm_head` on the last hidden state, without scaling or capping, and its
linear layers have the names of `LINEAR_MODULES`. The torch rollout engine computes the model
itself: full causal attention, rotary positions, a SiLU-gated MLP. vLLM runs more than either.
"""

from __future__ import annotations

from typing import Any

from ..errors import ModelError

LINEAR_MODULES = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
SUPPORTED = ("llama", "qwen2", "qwen3")  # by the torch engine; the trainer trains these too
TRAINABLE = (*SUPPORTED, "mistral", "olmo2", "smollm3")  # the further ones need vLLM for rollout
LENGTH_DEPENDENT_ROPE = ("dynamic", "longrope")


def require_supported(config: dict[str, Any], engine: str = "torch") -> None:
    """config: config.json as a mapping; engine: the rollout engine that is to run it.

    Raises: ModelError that names what is supported, and vLLM where that would do.
    """
    require_trainable(config)
    if engine == "torch" and (problem := _torch_problem(config)):
        raise ModelError(
            f"{problem} The rollout engine vllm runs this model: install vLLM and set"
            " MARLAAS_ROLLOUT_ENGINE=vllm, or choose another model."
        )


def require_trainable(config: dict[str, Any]) -> None:
    """What holds whatever engine generates. Raises: ModelError."""
    kind = config.get("model_type")
    if kind not in TRAINABLE:
        only = ", ".join(TRAINABLE[len(SUPPORTED) :])
        raise ModelError(
            f"Models of type {kind!r} are not supported; supported types are"
            f" {', '.join(SUPPORTED)}, and with the rollout engine vllm also {only}."
            " vLLM may run this model, but the trainer cannot. Choose another one."
        )
    rope = config.get("rope_parameters") or config.get("rope_scaling") or {}
    rope_type = rope.get("rope_type", rope.get("type", "default"))
    if rope_type in LENGTH_DEPENDENT_ROPE:
        raise ModelError(f"Rotary positions of type {rope_type!r} are not supported.")
    if config.get("quantization_config"):
        raise ModelError("Quantised models are not supported: give the unquantised weights.")


def _torch_problem(config: dict[str, Any]) -> str:
    """Why the torch engine cannot run it, "" if it can."""
    if config["model_type"] not in SUPPORTED:
        return (
            f"Models of type {config['model_type']!r} are not supported by the rollout engine"
            f" torch, which runs {', '.join(SUPPORTED)}."
        )
    if "sliding_attention" in (config.get("layer_types") or ()) or config.get("use_sliding_window"):
        return "Models with sliding-window attention are not supported by the rollout engine torch."
    if config.get("hidden_act", "silu") != "silu":
        return (
            f"Models with activation {config['hidden_act']!r} are not supported by the rollout"
            " engine torch: only silu."
        )
    return ""
