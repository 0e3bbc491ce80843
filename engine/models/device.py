"""The one place that picks a device. torch_npu is imported only here, when an NPU is asked for."""

from __future__ import annotations

import importlib

import torch

from ..errors import ModelError

DEVICES = ("auto", "cpu", "cuda", "npu")


def pick_device(name: str = "auto") -> torch.device:
    """name: "auto" (cuda if there is one, else cpu), "cpu", "cuda", "cuda:1", "npu", "npu:1".

    Raises: ModelError if the device is unknown or not there.
    """
    kind = name.partition(":")[0]
    if kind not in DEVICES:
        raise ModelError(f"Unknown device {name!r}; there are {', '.join(DEVICES)}.")
    if kind == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if kind == "cuda" and not torch.cuda.is_available():
        raise ModelError("Device cuda was asked for, but torch sees no CUDA device. Use cpu.")
    if kind == "npu":
        _require_npu()
    try:
        return torch.device(name)
    except RuntimeError as error:
        raise ModelError(f"Device {name!r} is not valid: {error}") from error


def _require_npu() -> None:
    """Importing torch_npu registers the device with torch. Raises: ModelError."""
    try:
        torch_npu = importlib.import_module("torch_npu")
    except ImportError as error:
        raise ModelError("Device npu needs torch_npu: pip install 'marlaas[npu]'.") from error
    if not torch_npu.npu.is_available():
        raise ModelError("Device npu was asked for, but torch_npu sees no NPU. Use cpu.")
