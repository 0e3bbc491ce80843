"""Loading a base model: frozen weights of a supported architecture on one device.

The base model is shared by every task of a process. Invariant: none of its weights ever requires
a gradient.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from ..errors import ModelError
from .architectures import require_trainable
from .device import pick_device
from .paths import model_directory, read_json

DTYPES = {"bfloat16": torch.bfloat16, "float32": torch.float32, "float16": torch.float16}


@dataclass(frozen=True)
class LoadedModel:
    """A base model in memory."""

    path: Path  # local Hugging Face directory
    model: Any  # transformers' …ForCausalLM, in evaluation mode, frozen
    device: torch.device
    dtype: torch.dtype

    @property
    def config(self) -> Any:
        """transformers' configuration."""
        return self.model.config


def load_base_model(
    path: str | os.PathLike[str], dtype: str = "bfloat16", device: str = "auto"
) -> LoadedModel:
    """path: Hugging Face directory or hub id; dtype: "bfloat16", "float32" or "float16"; device:
    what `pick_device` takes.

    Raises: ModelError if the architecture is unsupported, the files cannot be read, the device is
    not there or too small.
    """
    if dtype not in DTYPES:
        raise ModelError(f"Unknown dtype {dtype!r}; there are {', '.join(DTYPES)}.")
    directory = model_directory(path)
    require_trainable(read_json(directory, "config.json"))
    place = pick_device(device)
    from transformers import AutoModelForCausalLM
    from transformers.utils import logging

    logging.disable_progress_bar()
    try:
        model = AutoModelForCausalLM.from_pretrained(
            directory, dtype=DTYPES[dtype], attn_implementation="sdpa", use_safetensors=True
        )
    except (OSError, ValueError, RuntimeError) as error:
        raise ModelError(f"The model in {directory} cannot be loaded: {error}") from error
    try:
        model.requires_grad_(False).eval().to(place)
    except torch.OutOfMemoryError as error:
        raise ModelError(f"The model in {directory} does not fit on {place}: {error}") from error
    return LoadedModel(directory, model, place, DTYPES[dtype])
