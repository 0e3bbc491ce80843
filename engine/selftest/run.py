"""Running the self-test: every check on every engine asked for, whatever the others come to."""

from __future__ import annotations

import importlib.util
import logging
import os
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import torch

from ..errors import ModelError, RolloutError
from ..models.device import (
    default_dtype,
    describe_device,
    device_memory,
    empty_cache,
    pick_device,
)
from ..models.load import DTYPES
from ..models.paths import model_directory
from ..native.build import native
from ..rollout.engines import EngineSpec, VllmSettings, make_engine
from .registry import CHECKS
from .report import Report, Row, failed, reported, skipped
from .subject import MAX_LENGTH, NUM_SLOTS, Subject, make_adapters

log = logging.getLogger(__name__)
Say = Callable[[str], None]
NO_VLLM = "vLLM is not installed here, and MARLAAS_VLLM_URLS and MARLAAS_VLLM_PYTHON name none"


def run_selftest(
    path: str | os.PathLike[str],
    device: str = "auto",
    dtype: str = "",
    engines: Sequence[str] = ("torch",),
    say: Say = lambda text: None,
    vllm: VllmSettings | None = None,
) -> Report:
    """path: Hugging Face directory or hub id; dtype: "" takes the device's; say: hears what is
    going on. Raises: ModelError if the model or the device cannot be used.
    """
    started = time.monotonic()
    directory, place = model_directory(path), pick_device(device)
    dtype = dtype or default_dtype(place)
    if dtype not in DTYPES:
        raise ModelError(f"Unknown dtype {dtype!r}; there are {', '.join(DTYPES)}.")
    memory = reported("memory", device_memory(place).total / 2**30, "GiB")
    rows = [replace(row, check="device") for row in (memory, *_kernels(place))]
    for name in engines:
        spec = EngineSpec(
            path=str(directory),
            dtype=dtype,
            device=str(place),
            num_slots=NUM_SLOTS,
            max_length=MAX_LENGTH,
            vllm=vllm or VllmSettings(),
        )
        rows += [replace(row, engine=name) for row in _engine_rows(name, spec, place, say)]
        empty_cache(place)
    seconds = time.monotonic() - started
    return Report(directory.name, describe_device(place), dtype, tuple(rows), seconds)


def _kernels(place: torch.device) -> list[Row]:
    """Of our own engine, on a CPU: whether it goes without."""
    if place.type != "cpu":
        return []
    built = native()
    if built.kernels is None:
        return [skipped("native kernels", f"{built.reason}; all works, slower")]
    return [reported("native kernels", 1, "of 1")]


def _engine_rows(name: str, spec: EngineSpec, place: torch.device, say: Say) -> list[Row]:
    """All checks on one engine."""
    found = spec.vllm.urls or spec.vllm.python or importlib.util.find_spec("vllm")
    if name == "vllm" and not found:
        return [replace(skipped("engine", NO_VLLM), check="all")]
    say(f"{name}: loading {Path(spec.path).name}")
    try:
        engine = make_engine(name, spec)
    except RolloutError as error:
        return [replace(failed("engine", str(error)), check="all")]
    try:
        with tempfile.TemporaryDirectory(prefix="selftest-") as directory:
            workspace, path = Path(directory), Path(spec.path)
            adapters = make_adapters(path, workspace)
            return run_checks(
                Subject(
                    path,
                    place,
                    spec.dtype,
                    engine,
                    workspace,
                    adapters,
                    lambda text: say(f"{name}: {text}"),
                )
            )
    finally:
        if close := getattr(engine, "close", None):  # one with servers
            close()


def run_checks(subject: Subject) -> list[Row]:
    """A check that breaks is a failed row, and the next one begins with an empty engine."""
    rows: list[Row] = []
    for name, check in CHECKS.items():
        try:
            found = check(subject)
        except Exception as error:
            log.debug("the check %s broke", name, exc_info=True)
            subject.engine.reset()
            found = [failed("all of it", f"{type(error).__name__}: {error}")]
        rows += [replace(row, check=name) for row in found]
    return rows
