"""The one place that picks a device, and knows what differs between devices.

torch_npu is imported only here, and only when an NPU is asked for or "auto" finds it installed.
(torch itself loads installed backends when it is imported; TORCH_DEVICE_BACKEND_AUTOLOAD=0, which
the stack sets, keeps it from that.) CUDA, NPU and MPS paths follow the documentation of torch and
torch_npu; the tests run them against stand-ins.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import logging
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from ..errors import ModelError

log = logging.getLogger(__name__)

CGROUP_LIMIT = Path("/sys/fs/cgroup/memory.max")


def pick_device(name: str = "auto") -> torch.device:
    """name: "cpu", "cuda", "npu" or "mps", or one of several ("cuda:1"); "auto" is the first there
    is of cuda, npu, mps and cpu.

    Raises: ModelError if the device is unknown or not there.
    """
    kind, _, index = name.partition(":")
    if kind == "auto" and not index:
        kind = name = next(kind for kind, is_there in AUTO if is_there())
    elif kind not in PROBLEMS:
        raise ModelError(f"Unknown device {name!r}; there are {', '.join(['auto', *PROBLEMS])}.")
    if problem := PROBLEMS[kind]():
        raise ModelError(f"Device {kind} was asked for, but {problem}")
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise ModelError(f"Device {name!r} is not valid: {error}") from error
    count = 1 if kind in ("cpu", "mps") else _backend(device).device_count()
    if (device.index or 0) >= count:
        raise ModelError(f"Device {name} was asked for, but there are only {count} of {kind}.")
    return device


def _no_problem() -> str:
    return ""


def _cuda_problem() -> str:
    return "" if torch.cuda.is_available() else "torch sees no CUDA device. Use cpu."


def _npu_problem() -> str:
    """Importing torch_npu registers the device with torch. It can fail in many ways, for it loads
    the machine's drivers."""
    try:
        torch_npu = importlib.import_module("torch_npu")
    except ModuleNotFoundError:
        return "it needs torch_npu: pip install 'marlaas[npu]'."
    except Exception as error:
        return f"torch_npu cannot be imported: {error}"
    return "" if torch_npu.npu.is_available() else "torch_npu sees no NPU. Use cpu."


def _mps_problem() -> str:
    return "" if torch.backends.mps.is_available() else "torch sees no Metal GPU. Use cpu."


PROBLEMS: dict[str, Callable[[], str]] = {
    "cpu": _no_problem,
    "cuda": _cuda_problem,
    "npu": _npu_problem,
    "mps": _mps_problem,
}


def _is_npu_there() -> bool:
    """Looks for torch_npu without importing it; one that is there and broken is passed over."""
    if importlib.util.find_spec("torch_npu") is None:
        return False
    problem = _npu_problem()
    if problem:
        log.warning("no NPU is used: %s", problem)
    return not problem


AUTO: tuple[tuple[str, Callable[[], bool]], ...] = (
    ("cuda", lambda: not _cuda_problem()),
    ("npu", _is_npu_there),
    ("mps", lambda: not _mps_problem()),
    ("cpu", lambda: True),
)


def _backend(device: torch.device) -> Any:
    """torch.cuda, torch.npu or torch.mps."""
    return getattr(torch, device.type)


def describe_device(device: torch.device) -> str:
    """For people: its name, and on a CPU the threads that torch uses."""
    if device.type == "cpu":
        return f"cpu, {torch.get_num_threads()} threads"
    if device.type == "mps":
        return "mps"
    return f"{device}, {_backend(device).get_device_name(device)}"


def synchronize(device: torch.device) -> None:
    """Wait until the device has done what it was given, so that a clock tells the truth."""
    if device.type == "mps":
        torch.mps.synchronize()
    elif device.type != "cpu":
        _backend(device).synchronize(device)


def empty_cache(device: torch.device) -> None:
    """Give memory that torch keeps for later back to the device; nothing to do on a CPU."""
    if device.type != "cpu":
        _backend(device).empty_cache()


def default_dtype(device: torch.device) -> str:
    """The dtype for a base model when nobody says: bfloat16 where the device computes in it.

    On MPS float32: whether shorter ones train well there was not tried. On a processor without
    instructions for bfloat16, float32: emulated, a product takes many times as long.
    """
    if device.type == "mps":
        return "float32"
    if device.type == "cuda":
        is_native = torch.cuda.is_bf16_supported(including_emulation=False)
        return "bfloat16" if is_native else "float16"
    if device.type == "npu":
        return "bfloat16" if _backend(device).is_bf16_supported() else "float16"
    return "bfloat16" if _has_cpu_bf16() else "float32"


def _has_cpu_bf16() -> bool:
    return torch.backends.mkldnn.is_available() and torch.ops.mkldnn._is_mkldnn_bf16_supported()


@dataclass(frozen=True)
class DeviceMemory:
    """Bytes. On a CPU of the process, elsewhere of the process' tensors on the device."""

    in_use: int
    peak: int  # the most since the process began; on MPS, which does not say, what is in use
    total: int  # of the device; on a CPU what the machine or its container has


def device_memory(device: torch.device) -> DeviceMemory:
    if device.type == "cpu":
        return _process_memory()
    backend = _backend(device)
    if device.type == "mps":
        in_use = backend.current_allocated_memory()
        return DeviceMemory(in_use, in_use, backend.recommended_max_memory())
    return DeviceMemory(
        backend.memory_allocated(device),
        backend.max_memory_allocated(device),
        backend.mem_get_info(device)[1],
    )


def _process_memory() -> DeviceMemory:
    import resource  # not there on Windows, which torch's other devices may run on

    unit = 1 if sys.platform == "darwin" else 1024
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
    page = os.sysconf("SC_PAGE_SIZE")
    total = page * os.sysconf("SC_PHYS_PAGES")
    try:
        in_use = int(Path("/proc/self/statm").read_text().split()[1]) * page
    except OSError:  # no Linux: the peak is what can be known
        in_use = peak
    with contextlib.suppress(OSError, ValueError):  # no container, or one without limit ("max")
        total = min(total, int(CGROUP_LIMIT.read_text()))
    return DeviceMemory(in_use, peak, total)
