"""Building and loading the C sources here, for this machine, by its own C compiler.

The library is kept in the user's cache directory under a name made of everything that it depends
on, and is built again when any of that changes. Where there is no compiler, or the system is not
one that this was written for, there is none and `native` says why; callers then do without.
Invariant: the library shares torch's pool of OpenMP threads, because torch's runtime is loaded
before it under the same name; a second pool would take the cores from the first.
"""

from __future__ import annotations

import ctypes
import hashlib
import logging
import os
import platform
import shlex
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import torch

from .. import built_files

SOURCES = tuple(Path(__file__).with_name(name) for name in ("kernels.c", "products.c"))
HEADERS = tuple(Path(__file__).with_name(name) for name in ("vectors.h", "adapters.h"))
PRODUCTS = ("", "vectors", "tiles")  # what `products_by` in products.c returns
FLAGS = (
    "-O3",
    "-march=native",
    "-mprefer-vector-width=512",
    "-fno-math-errno",
    "-fno-trapping-math",
    "-ffp-contract=fast",
    "-fopenmp",
    "-shared",
    "-fPIC",
)
BUILD_TIMEOUT_S = 120
DIGEST_BYTES = 32
SWITCH = "MARLAAS_NATIVE"  # "0" does without

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Native:
    """The kernels, or why there are none."""

    kernels: ctypes.CDLL | None
    reason: str = ""
    products: str = ""  # of PRODUCTS: what products.c computes with; "": there are none


@cache
def native() -> Native:
    """Loaded, after building it if need be (a few seconds, once a machine)."""
    if os.environ.get(SWITCH) == "0":
        return Native(None, f"switched off by {SWITCH}=0")
    if sys.platform != "linux" or platform.machine() != "x86_64":
        return Native(None, f"not written for {sys.platform} on {platform.machine()}")
    command = shlex.split(os.environ.get("CC") or "gcc")
    if not command or shutil.which(command[0]) is None:
        return Native(None, "no C compiler: install gcc, or name one in CC")
    try:
        kernels = _declared(_loaded(command))
        return Native(kernels, products=PRODUCTS[kernels.products_by()])
    except (OSError, RuntimeError, subprocess.SubprocessError) as error:
        output = (getattr(error, "stderr", None) or "").strip() or str(error)
        logger.warning("The engine does without its native kernels: %s", output)
        return Native(None, f"building failed: {output.splitlines()[-1][:200]}")


def cache_directory() -> Path:
    """Where built libraries are kept."""
    return built_files.cache_directory("native")


def _loaded(command: list[str]) -> ctypes.CDLL:
    """Raises: OSError, RuntimeError, SubprocessError."""
    path = _built(command)
    if not _is_whole(path):  # damaged, say by a full disk; to run it could end the process
        path.unlink(missing_ok=True)
        path = _built(command)
    return ctypes.CDLL(str(path))


def _built(command: list[str]) -> Path:
    """The library's file: what the compiler wrote, and the digest of that at its end.

    Raises: OSError, RuntimeError (nobody's home), SubprocessError.
    """
    directory = built_files.built_directory("native")
    path = directory / f"kernels-{_key(command)}.so"
    if path.exists():
        built_files.require_own(path)
    else:
        handle, unfinished = tempfile.mkstemp(".so", dir=directory)
        os.close(handle)
        try:
            subprocess.run(
                [*command, *FLAGS, "-o", unfinished, *map(str, SOURCES)],
                check=True,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=BUILD_TIMEOUT_S,
            )
            with open(unfinished, "r+b") as file:
                file.write(hashlib.sha256(file.read()).digest())
                os.fsync(file.fileno())
            os.replace(unfinished, path)  # several processes may build it at once
        finally:
            Path(unfinished).unlink(missing_ok=True)
    return path


def _is_whole(path: Path) -> bool:
    content = path.read_bytes()
    return hashlib.sha256(content[:-DIGEST_BYTES]).digest() == content[-DIGEST_BYTES:]


def _key(command: list[str]) -> str:
    """Of source, flags, compiler and processor: a home directory may serve several machines."""
    version = subprocess.run(
        [*command, "--version"],
        check=True,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=BUILD_TIMEOUT_S,
    ).stdout
    processor = torch.backends.cpu.get_cpu_capability() + built_files.processor()
    sources = [source.read_bytes() for source in (*SOURCES, *HEADERS)]
    parts = (*sources, " ".join(FLAGS).encode(), version.encode(), processor.encode())
    return built_files.key_of(parts)


def _declared(library: ctypes.CDLL) -> ctypes.CDLL:
    """With the types of the arguments; every one is an address, a size or a float."""
    address, size, real = ctypes.c_void_p, ctypes.c_int64, ctypes.c_float
    types = {
        "embed": (size, address, address, size, address, address, real, address),
        "after_qkv": (address,) * 8,
        "after_residual": (address,) * 7 + (real, address),
        "after_gate_up": (address,) * 6,
        "chunk_masses": (size,) * 3 + (address,) * 4,
    }
    if hasattr(library, "product"):
        types["product"] = (size,) * 3 + (address,) * 4
        types["plain_product"] = types["product"]
        types["adapted_product"] = (size,) + (address,) * 7
    for name, arguments in types.items():
        function = getattr(library, name, None)
        if function is None:
            raise OSError(f"the library has no function {name}")
        function.argtypes, function.restype = arguments, None
    return library
