"""Makes the interpreter one that has only what is in it: no files, clocks, imports or programs.

The component imports nothing from outside, so none of this is protection: without it the same calls
would end in a trap, and the tenant would read "unreachable" instead of a sentence.
"""

from __future__ import annotations

import builtins
import io
import os
import sys
import time
from typing import Any

import library  # noqa: F401 - what tenants may import has to be in the image

RECURSION_LIMIT = 1000
CLOCK_S = 1.0  # every clock stands still here
SECONDS = ("time", "monotonic", "perf_counter", "process_time", "thread_time")
REFUSED_OS = (
    "_exit abort chdir close fork getcwd getrandom kill listdir lstat mkdir open popen posix_spawn"
    " read remove rename rmdir scandir stat symlink system truncate unlink urandom utime write"
)


class Capture(io.StringIO):
    """Standard output: keeps so many characters and drops the rest."""

    def __init__(self, num_characters: int) -> None:
        super().__init__()
        self._room = self._size = num_characters

    def write(self, text: str) -> int:
        kept = text[: self._room]
        self._room -= len(kept)
        super().write(kept)
        return len(text)

    def take(self) -> str:
        """What was written since the last time."""
        text = self.getvalue()
        self.seek(0)
        self.truncate()
        self._room = self._size
        return text


class _NothingElse:
    """The last of the finders."""

    @staticmethod
    def find_spec(name: str, path: Any = None, target: Any = None) -> None:
        raise ModuleNotFoundError(
            f"No module named {name!r} in the sandbox: it has parts of the standard library only",
            name=name,
        )


def _refuse(*_: Any, **__: Any) -> None:
    raise PermissionError("not available in the sandbox")


class Files:
    """Refuses what C opens, too: for a SyntaxError the compiler looks for the source's file.

    Open while the component is baked, which loads modules after ours; closed with the first call.
    """

    is_closed = False

    @classmethod
    def audit(cls, event: str, _: Any) -> None:
        if cls.is_closed and (event == "open" or event.startswith("os.")):
            _refuse()


def close_interpreter(output: Capture) -> None:
    sys.stdin = io.StringIO()
    sys.stdout = sys.stderr = output
    sys.__stdout__ = sys.__stderr__ = output  # type: ignore[misc, assignment]
    sys.path[:] = []
    kept = ("BuiltinImporter", "FrozenImporter")
    sys.meta_path[:] = [f for f in sys.meta_path if getattr(f, "__name__", "") in kept]
    sys.meta_path.append(_NothingElse)  # type: ignore[arg-type]
    for name in SECONDS:
        setattr(time, name, lambda: CLOCK_S)
        setattr(time, f"{name}_ns", lambda: int(CLOCK_S * 1e9))
    time.sleep = lambda seconds: None
    builtins.open = io.open = _refuse  # type: ignore[assignment]
    builtins.input = builtins.breakpoint = _refuse  # type: ignore[assignment]
    for name in REFUSED_OS.split():
        if hasattr(os, name):
            setattr(os, name, _refuse)
    sys.addaudithook(Files.audit)
    sys.setrecursionlimit(RECURSION_LIMIT)
