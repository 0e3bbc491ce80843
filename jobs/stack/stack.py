"""A stack of one's own for tests and benchmarks: `manage.py run` in a directory, on free ports."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from . import processes, readiness, supervision
from .keeper import end_stack
from .layout import REPOSITORY, Layout

# What the caller's own process was configured with must not reach a stack beside it.
OWN_SETTINGS = (
    "ARTIFACTS_URL",
    "DATABASE_URL",
    "DJANGO_SETTINGS_MODULE",
    "REDIS_PORT",
    "REDIS_PREFIX",
    "REDIS_URL",
    "SECRET_KEY",
    "WEB_HOST",
    "WEB_PORT",
)


class StackError(Exception):
    """The stack ended or was not ready in time; the message holds the end of its log."""


class Stack:
    """The real stack. Use it as a context manager, or call start, wait_ready and stop.

    var_dir: its MARLAAS_VAR; a second Stack on the same one goes on where the first stopped.
    env: settings of it, over the caller's environment. base_models: slug to path (directory or hub
    id); none: the demo's. with_demo: seed the demo tenants and tasks. rollout_workers: of each base
    model.
    """

    def __init__(
        self,
        var_dir: Path | str,
        env: Mapping[str, str] | None = None,
        base_models: Mapping[str, str] | None = None,
        with_demo: bool = False,
        rollout_workers: int = 1,
    ) -> None:
        self.layout = Layout(Path(var_dir).resolve())
        self.layout.make_directories()
        self.env = _clean_environment() | {
            "MARLAAS_VAR": str(self.layout.var),
            "WEB_PORT": str(_free_port()),
            **(env or {}),
        }
        self._options = [
            f"--base-model={slug}={path}" for slug, path in (base_models or {}).items()
        ]
        self._options += [] if with_demo else ["--no-demo"]
        self._options += [f"--rollout-workers={rollout_workers}"]
        self._parent: subprocess.Popen | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.env['WEB_PORT']}/"

    @property
    def output(self) -> Path:
        """What `manage.py run` printed."""
        return self.layout.log / "run.log"

    def start(self) -> None:
        """Start `manage.py run`; returns at once. After a kill of it: another, which adopts."""
        with open(self.output, "ab") as output:
            self._parent = subprocess.Popen(
                [sys.executable, "manage.py", "run", *self._options],
                cwd=REPOSITORY,
                env=self.env,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )

    def wait_ready(self, timeout_s: float = 180.0) -> None:
        """Wait until every part is there. Raises: StackError."""
        deadline = time.monotonic() + timeout_s
        while missing := readiness.missing_parts(self.url):
            if self._parent is not None and self._parent.poll() not in (None, -signal.SIGKILL):
                raise StackError(f"manage.py run ended: {readiness.last_lines(self.output)}")
            if time.monotonic() > deadline:
                path = readiness.log_of(missing[0], self.layout.log)
                end = readiness.last_lines(path)
                raise StackError(f"not ready after {timeout_s:.0f} s: {missing}; {path}: {end}")
            time.sleep(0.25)

    def pids(self) -> dict[str, int]:
        """Living processes by name: the programs, `supervisord`, and `run`, their parent."""
        found = supervision.program_processes(self.layout)
        parents = {
            "supervisord": processes.living(supervision.record_path(self.layout)),
            "run": processes.living(self.layout.run / "keeper.json"),
        }
        found |= {name: process for name, process in parents.items() if process}
        return {name: process.pid for name, process in found.items()}

    def manage(self, *arguments: str, timeout_s: float = 120.0) -> str:
        """Run another management command on this stack; returns what it printed.

        Raises: StackError with its output if it fails.
        """
        done = subprocess.run(
            [sys.executable, "manage.py", *arguments],
            cwd=REPOSITORY,
            env=self.env,
            capture_output=True,
            text=True,
            timeout=timeout_s,
        )
        if done.returncode:
            raise StackError(f"manage.py {arguments[0]}: {done.stdout}{done.stderr}")
        return done.stdout

    def stop(self) -> None:
        """End every process; safe to repeat."""
        if self._parent is not None:
            self._parent.terminate()
            try:
                self._parent.wait(timeout=40)
            except subprocess.TimeoutExpired:
                self._parent.kill()
                self._parent.wait()
        end_stack(self.layout)

    def __enter__(self) -> Self:
        self.start()
        try:
            self.wait_ready()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()


def _clean_environment() -> dict[str, str]:
    return {
        name: value
        for name, value in os.environ.items()
        if name not in OWN_SETTINGS and not name.startswith("MARLAAS_")
    }


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
