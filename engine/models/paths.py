"""Where a base model's files are: a local Hugging Face directory, or a hub id. No torch."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from ..errors import ModelError

HUB_FILES = ["*.json", "*.safetensors", "*.jinja", "*.txt", "*.model"]


def model_directory(path: str | os.PathLike[str]) -> Path:
    """The local directory of `path`; a hub id ("owner/name") is downloaded or found in its cache.

    Raises: ModelError if it is neither.
    """
    directory = Path(path)
    if directory.is_dir():
        return directory
    name = os.fspath(path)
    if name.startswith((".", "/", "~")) or name.count("/") != 1:
        raise ModelError(f"{name} is neither a directory with a model nor a hub id (owner/name).")
    from huggingface_hub import snapshot_download

    try:
        return Path(snapshot_download(name, allow_patterns=HUB_FILES))
    except Exception as error:  # the hub's client raises many kinds
        raise ModelError(f"The model {name} could not be fetched from the hub: {error}") from error


def read_json(directory: Path, name: str) -> dict[str, Any]:
    """A JSON object of the model's directory; {} if there is no such file. Raises: ModelError."""
    path = directory / name
    if not path.is_file():
        return {}
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ModelError(f"{path} cannot be read: {error}") from error
    if not isinstance(data, dict):
        raise ModelError(f"{path} must hold a JSON object.")
    return data
