"""Which rollout engines there are, and the one way to make one. Imports what they need late.

To add an engine, write a function from EngineSpec to RolloutEngine and put it into `ENGINES`.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import shlex
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import ModelError, RolloutError
from ..models.architectures import LINEAR_MODULES, require_supported
from ..models.paths import model_directory, read_json
from .protocol import RolloutEngine

if TYPE_CHECKING:
    from .vllm_adapters import AdapterLimits

VLLM_DEVICES = ("cuda", "npu")  # for which "auto" chooses vLLM
OWN_LORAS, OWN_CPU_LORAS, OWN_RANK = 8, 16, 64  # of servers that we start, unless said otherwise
# Defaults of vLLM itself (vllm/config/lora.py), for servers that somebody else started
THEIR_LORAS, THEIR_RANK = 1, 16


@dataclass(frozen=True)
class VllmSettings:
    """How the vLLM engine gets its servers."""

    urls: tuple[str, ...] = ()  # of running servers; none: one is started
    python: str = ""  # an interpreter that has vLLM; "": this one
    arguments: str = ""  # of vLLM's server, as on a command line; for URLs: what they were given
    api_key: str = ""  # of the servers at `urls`
    directory: Path | None = None  # for checked copies of adapters, which servers read; emptied


@dataclass(frozen=True)
class EngineSpec:
    """What an engine is to do, whichever it is."""

    path: str  # Hugging Face directory or hub id
    dtype: str = "bfloat16"
    device: str = "auto"
    num_slots: int = 64  # sequences at once
    max_length: int = 2048  # tokens of a sequence, prompt and answer
    vllm: VllmSettings = field(default_factory=VllmSettings)
    torch_options: Mapping[str, Any] = field(default_factory=dict)  # further ones of TorchEngine


def make_engine(name: str, spec: EngineSpec) -> RolloutEngine:
    """name: a key of `ENGINES`, or "auto". Raises: ModelError, RolloutError."""
    name = pick_engine(name, spec.device, bool(spec.vllm.urls or spec.vllm.python))
    config = read_json(model_directory(spec.path), "config.json")
    require_supported(config, name)
    return ENGINES[name](spec)


def pick_engine(name: str, device: str = "auto", has_vllm: bool = False) -> str:
    """ "auto" is vllm where there is one and an accelerator that it runs on, else torch.

    has_vllm: servers, or an interpreter with vLLM, are named in the settings; an importable vLLM
    is found without. Raises: ModelError if there is no such engine.
    """
    if name != "auto":
        if name not in ENGINES:
            raise ModelError(
                f"There is no rollout engine {name!r}; there are auto, {', '.join(ENGINES)}."
            )
        return name
    if not has_vllm and importlib.util.find_spec("vllm") is None:
        return "torch"
    from ..models.device import pick_device

    return "vllm" if pick_device(device).type in VLLM_DEVICES else "torch"


def _make_torch(spec: EngineSpec) -> RolloutEngine:
    from ..models.chat import ChatTokenizer
    from ..models.load import load_base_model
    from .torch_engine import TorchEngine

    base = load_base_model(spec.path, spec.dtype, spec.device)
    return TorchEngine(
        base,
        num_slots=spec.num_slots,
        max_length=spec.max_length,
        decode=ChatTokenizer(base.path).decode,
        **spec.torch_options,
    )


def _make_vllm(spec: EngineSpec) -> RolloutEngine:
    from .vllm_dispatch import VllmOptions
    from .vllm_engine import VllmEngine
    from .vllm_model import read_shape
    from .vllm_server import ServerCommand

    settings = spec.vllm
    given = tuple(shlex.split(settings.arguments))
    limits = adapter_limits(given, is_own=not settings.urls)
    shape = read_shape(spec.path, spec.dtype)
    command = ServerCommand(
        python=settings.python or sys.executable,
        model=shape.path,
        arguments=server_arguments(spec, limits, given),
    )
    options = VllmOptions(
        sources=settings.urls or (command,),
        num_slots=spec.num_slots,
        max_length=spec.max_length,
        limits=limits,
        api_key=settings.api_key or os.environ.get("VLLM_API_KEY", ""),
    )
    directory = settings.directory or Path(tempfile.mkdtemp(prefix="marlaas-adapters-"))
    return VllmEngine(shape, options, directory)


def server_arguments(
    spec: EngineSpec, limits: AdapterLimits, given: tuple[str, ...]
) -> tuple[str, ...]:
    """What every server of ours needs; what the operator says himself wins.

    Processed log-probs are those of the distribution sampled from. A model's own generation_config
    would change the sampling behind our back.
    """
    own = {
        "--dtype": spec.dtype,
        "--max-model-len": str(spec.max_length),
        "--max-num-seqs": str(spec.num_slots),
        "--max-loras": str(limits.max_loras),
        "--max-cpu-loras": str(limits.max_cpu_loras),
        "--max-lora-rank": str(limits.max_rank),
        "--logprobs-mode": "processed_logprobs",
        "--generation-config": "vllm",
    }
    said = {word.partition("=")[0] for word in given}
    words = [word for pair in own.items() if pair[0] not in said for word in pair]
    # Otherwise vLLM also wraps the output head, which no adapter of ours touches: that is slower,
    # and its CPU build then dies at the first prompt whose log-probs are asked for.
    targets = () if "--lora-target-modules" in said else ("--lora-target-modules", *LINEAR_MODULES)
    return (*words, *targets, "--enable-lora", *given)


def adapter_limits(given: tuple[str, ...], is_own: bool) -> AdapterLimits:
    """What a server with these arguments can hold. Raises: RolloutError if they are not numbers."""
    from .vllm_adapters import AdapterLimits

    parser = argparse.ArgumentParser(add_help=False, exit_on_error=False, allow_abbrev=False)
    for option in ("--max-loras", "--max-cpu-loras", "--max-lora-rank"):
        parser.add_argument(option, type=int)
    try:
        said, _ = parser.parse_known_args(given)
    except argparse.ArgumentError as error:
        raise RolloutError(f"vLLM's arguments: {error}") from error
    loras = said.max_loras or (OWN_LORAS if is_own else THEIR_LORAS)
    more = max(loras, OWN_CPU_LORAS) if is_own else loras
    return AdapterLimits(
        max_loras=loras,
        max_cpu_loras=max(loras, said.max_cpu_loras or more),
        max_rank=said.max_lora_rank or (OWN_RANK if is_own else THEIR_RANK),
    )


ENGINES: dict[str, Callable[[EngineSpec], RolloutEngine]] = {
    "torch": _make_torch,
    "vllm": _make_vllm,
}
