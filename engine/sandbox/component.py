"""The compiled component, built here on first use: some ten seconds, once a machine and version.

componentize-py bakes our guest sources into CPython; wasmtime compiles that for this processor.
Invariant: the component asks for nothing outside itself (checked when it is compiled), and only a
file of our own is loaded.
"""

from __future__ import annotations

import fcntl
import hashlib
import importlib.metadata
import importlib.util
import logging
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from ..built_files import built_directory, key_of, processor, require_own
from ..errors import GraderError
from .child import CONFIG

HERE = Path(__file__).parent
GUEST = HERE / "guest"
PACKAGES = ("componentize-py", "wasmtime")
BUILD_TIMEOUT_S = 300
DIGEST_SUFFIX = ".sha256"
_COMPONENTIZE = "import sys; from componentize_py import script; sys.exit(script())"
_RUN_CHILD = (
    "import runpy, sys; sys.path[:0] = sys.argv[1:3]; module = sys.argv[3]; del sys.argv[1:4];"
    " runpy.run_module(module, run_name='__main__')"
)

logger = logging.getLogger(__name__)


def compiled_component() -> Path:
    """Its file, after building it if need be.

    Raises: GraderError where it cannot be built, with what to do.
    """
    try:
        directory = built_directory("sandbox")
        path = directory / f"guest-{_key()}.cwasm"
        with open(directory / "lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # another process may be building it
            if not _is_whole(path):
                _build(path)
        return path
    except (OSError, RuntimeError, ImportError, subprocess.SubprocessError) as error:
        output = (getattr(error, "stderr", None) or "").strip() or str(error)
        raise GraderError(
            "python_grader_server_error: the sandbox for Python cannot be built on this machine"
            f" ({output.splitlines()[-1][:200]}); its operator finds more in the log"
        ) from error


def child_command(module: str, *arguments: str) -> list[str]:
    """An interpreter that sees the child's package and wasmtime, and nothing else of ours.

    Raises: RuntimeError without wasmtime.
    """
    spec = importlib.util.find_spec("wasmtime")  # found and not imported: it is large
    if spec is None or spec.origin is None:
        raise RuntimeError("wasmtime is not installed")
    site = Path(spec.origin).parent.parent
    command = [sys.executable, "-I", "-S", "-B", "-c", _RUN_CHILD]
    return [*command, str(HERE), str(site), f"child.{module}", *arguments]


def _key() -> str:
    versions = [f"{name} {importlib.metadata.version(name)}" for name in PACKAGES]
    sources = [f.name.encode() + f.read_bytes() for f in sorted(GUEST.iterdir()) if f.is_file()]
    return key_of([*sources, " ".join(versions).encode(), CONFIG.encode(), processor().encode()])


def _is_whole(path: Path) -> bool:
    """There, ours, and as it was written. Raises: OSError if it is somebody else's."""
    digest = path.with_suffix(DIGEST_SUFFIX)
    if not path.exists() or not digest.exists():
        return False
    for file in (path, digest):
        require_own(file)
    with open(path, "rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest() == digest.read_text()


def _build(path: Path) -> None:
    """Raises: OSError, SubprocessError."""
    logger.warning("Building the sandbox for Python, once on this machine: up to a minute")
    began = time.monotonic()
    with tempfile.TemporaryDirectory(dir=path.parent) as folder:
        component, compiled = Path(folder) / "guest.wasm", Path(folder) / "guest.cwasm"
        sources = shutil.copytree(GUEST, Path(folder) / "guest")  # Python writes its caches there
        arguments = ["-d", str(sources / "guest.wit"), "-w", "guest", "componentize", "--stub-wasi"]
        arguments += ["-p", str(sources), "runner", "-o", str(component)]
        _run([sys.executable, "-I", "-B", "-c", _COMPONENTIZE, *arguments], folder)
        _run(child_command("compile", str(component), str(compiled)), folder)
        digest = compiled.with_suffix(DIGEST_SUFFIX)
        with open(compiled, "rb") as content:
            digest.write_text(hashlib.file_digest(content, "sha256").hexdigest())
            os.fsync(content.fileno())
        os.replace(compiled, path)
        os.replace(digest, path.with_suffix(DIGEST_SUFFIX))
    logger.warning("Built the sandbox for Python in %.0f s", time.monotonic() - began)


def _run(command: list[str], folder: str) -> None:
    try:
        subprocess.run(
            command,
            check=True,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=BUILD_TIMEOUT_S,
            cwd=folder,
            env={"TMPDIR": folder, "HOME": folder},
        )
    except subprocess.CalledProcessError as error:
        logger.error("Building the sandbox for Python failed: %s", error.stderr)
        raise
