"""Where what is built for this machine is kept, and whether it may be run.

Builds lie in the user's cache directory, under names made of everything that they depend on.
Invariant: what others could have written is not run.
"""

from __future__ import annotations

import hashlib
import os
import platform
import stat
from collections.abc import Iterable
from pathlib import Path


def built_directory(kind: str) -> Path:
    """The user's own, made if need be. Raises: OSError, RuntimeError (nobody's home)."""
    directory = cache_directory(kind)
    directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    require_own(directory)
    return directory


def cache_directory(kind: str) -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "marlaas" / kind


def require_own(path: Path) -> None:
    """Raises: OSError if it is a link, another user's, or others may write to it."""
    found = path.lstat()
    if stat.S_ISLNK(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o022:
        raise OSError(f"{path} is a link, another user's, or others may write to it")


def key_of(parts: Iterable[bytes]) -> str:
    """A short name for everything that a build depends on."""
    return hashlib.sha256(b"\0".join(parts)).hexdigest()[:16]


def processor() -> str:
    """Model and features of the first processor: a home directory may serve several machines."""
    wanted = ("model name", "flags", "CPU part", "Features")
    try:
        lines = Path("/proc/cpuinfo").read_text().split("\n\n")[0].splitlines()
    except OSError:
        return f"{platform.system()} {platform.machine()} {platform.processor()}"
    return "".join(line for line in lines if line.startswith(wanted))
