"""Which base models the torch engine and the trainer can run, decided from config.json. No torch.

Invariant: what passes here has full causal attention, rotary positions that do not depend on the
length of the batch, a SiLU-gated MLP, and the seven linear layers of `LINEAR_MODULES`.
"""

from __future__ import annotations

from typing import Any

from ..errors import ModelError

SUPPORTED = ("llama", "qwen2", "qwen3")
LENGTH_DEPENDENT_ROPE = ("dynamic", "longrope")


def require_supported(config: dict[str, Any]) -> None:
    """config: config.json as a mapping. Raises: ModelError that names what is supported."""
    kind = config.get("model_type")
    if kind not in SUPPORTED:
        raise ModelError(
            f"Models of type {kind!r} are not supported; supported types are"
            f" {', '.join(SUPPORTED)}. Choose such a model."
        )
    if "sliding_attention" in (config.get("layer_types") or ()) or config.get("use_sliding_window"):
        raise ModelError("Models with sliding-window attention are not supported.")
    rope = config.get("rope_parameters") or config.get("rope_scaling") or {}
    rope_type = rope.get("rope_type", rope.get("type", "default"))
    if rope_type in LENGTH_DEPENDENT_ROPE:
        raise ModelError(f"Rotary positions of type {rope_type!r} are not supported.")
    if config.get("hidden_act", "silu") != "silu":
        raise ModelError(
            f"Models with activation {config['hidden_act']!r} are not supported: only silu."
        )
    if config.get("quantization_config"):
        raise ModelError("Quantised models are not supported: give the unquantised weights.")
