"""Which base models this installation serves."""

from __future__ import annotations

import re
from pathlib import Path

from django.conf import settings

from engine.errors import ModelError
from engine.models.architectures import require_supported
from engine.models.chat import ChatTokenizer
from engine.models.paths import model_directory, read_json
from engine.rollout.engines import pick_engine
from jobs.models import BaseModel

SLUG = re.compile(r"[a-z0-9][a-z0-9_-]{0,49}")
DEFAULT_MAX_MODEL_LENGTH = 2048  # tokens; longer ones cost memory that small machines lack


def add_base_model(
    slug: str, path: str, name: str = "", dtype: str = "", max_model_length: int = 0
) -> BaseModel:
    """Register a local Hugging Face directory or a hub id; what is left out stays as it was.

    Raises: ModelError if it cannot serve as a base model; then nothing is stored.
    """
    if not SLUG.fullmatch(slug):
        raise ModelError(f"{slug!r} is no slug: use small letters, digits, - and _.")
    from engine.models.device import default_dtype, pick_device  # torch: only where it is needed

    local = Path(path).expanduser()
    path = str(local.resolve()) if local.is_dir() else path
    config = read_json(model_directory(path), "config.json")
    has_vllm = bool(settings.VLLM_URLS or settings.VLLM_PYTHON)
    require_supported(config, pick_engine(settings.ROLLOUT_ENGINE, settings.DEVICE, has_vllm))
    ChatTokenizer(path)
    longest = int(config.get("max_position_embeddings") or DEFAULT_MAX_MODEL_LENGTH)
    if max_model_length > longest:
        raise ModelError(f"{path} takes at most {longest} tokens, not {max_model_length}.")
    given = {"name": name, "dtype": dtype, "max_model_length": max_model_length}
    given = {field: value for field, value in given.items() if value}
    new = {
        "name": Path(path).name,
        "max_model_length": min(longest, DEFAULT_MAX_MODEL_LENGTH),
        "dtype": default_dtype(pick_device(settings.DEVICE)),
    }
    row, _ = BaseModel.objects.update_or_create(
        slug=slug,
        defaults={"path": path, "is_enabled": True, **given},
        create_defaults={"path": path, **new, **given},
    )
    return row
