"""A process of its own for each engine, told by one JSON line what to do and answering with one.

Only one works at a time: the others are stopped (SIGSTOP, with all their children), so that no
idle thread of theirs takes a core or a cache line from the one that is measured.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import select
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
KEPT_LINES = 12  # of a log, in an error

_living: list[Worker] = []


@atexit.register
def _close_all() -> None:
    """A stopped process would never see that its parent has gone."""
    for worker in [*_living]:
        worker.close()


class WorkerError(RuntimeError):
    """The process answered with an error, ended, or did not answer in time."""


class Worker:
    """A child that serves calls of functions by name. Not thread-safe."""

    def __init__(
        self,
        name: str,
        python: str,
        module: str,
        log: Path,
        env: dict[str, str] | None = None,
        say: Callable[[str], None] = print,
    ) -> None:
        """module: run with `-m`, must call `serve.serve`; log: gets all that it prints."""
        self.name, self._log, self._say = name, log, say
        self.is_companion = False  # works on beside the others
        reader, writer = os.pipe()
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                [python, "-m", module, str(writer)],
                cwd=ROOT,
                env={**os.environ, **(env or {})},
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=output,
                pass_fds=[writer],
                start_new_session=True,
            )
        os.close(writer)
        self._reader, self._rest = reader, b""
        self._is_stopped = False
        _living.append(self)

    @property
    def pid(self) -> int:
        return self._process.pid

    def call(self, function: str, timeout_s: float = 1800, **arguments: Any) -> Any:
        """Call "module.function" there, while all others stand still. Raises: WorkerError."""
        for other in _living:
            if other is not self and not other.is_companion:
                other.stop()
        self.resume()
        line = json.dumps({"call": function, "with": arguments}) + "\n"
        assert self._process.stdin
        try:
            self._process.stdin.write(line.encode())
            self._process.stdin.flush()
        except OSError as error:
            raise self._failure(f"is gone ({error})") from error
        for answer in self._answers(time.monotonic() + timeout_s):
            if "say" in answer:
                self._say(f"  {answer['say']}")
            elif "error" in answer:
                raise self._failure(answer["error"])
            else:
                return answer["result"]
        raise self._failure(f"{function} did not end in {timeout_s:g} s")

    def stop(self) -> None:
        """Take it off the processor until the next call."""
        if not self._is_stopped and self._process.poll() is None:
            os.killpg(self.pid, signal.SIGSTOP)
            self._is_stopped = True

    def resume(self) -> None:
        if self._is_stopped and self._process.poll() is None:
            os.killpg(self.pid, signal.SIGCONT)
        self._is_stopped = False

    def close(self) -> None:
        """End it and whatever it started."""
        if self in _living:
            _living.remove(self)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        self._process.wait()
        with contextlib.suppress(BrokenPipeError):
            assert self._process.stdin
            self._process.stdin.close()
        os.close(self._reader)

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _answers(self, deadline: float) -> Iterator[dict[str, Any]]:
        """Each line as it comes; ends at the deadline. Raises: WorkerError if the process ends."""
        while True:
            while b"\n" in self._rest:
                line, self._rest = self._rest.split(b"\n", 1)
                yield json.loads(line)
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self._reader], [], [], left)[0]:
                return
            data = os.read(self._reader, 1 << 16)
            if not data:
                raise self._failure(f"ended with status {self._process.wait()}")
            self._rest += data

    def _failure(self, text: str) -> WorkerError:
        lines = self._log.read_text(errors="replace").splitlines()[-KEPT_LINES:]
        return WorkerError("\n".join([f"{self.name}: {text}", *lines]))
