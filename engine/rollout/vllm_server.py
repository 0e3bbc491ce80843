"""A vLLM server of our own: one process group on a free loopback port, with a key of its own.

Knows nothing of sequences. Invariant: the server, its engine and its workers end with `close`, with
the process that made it, or with each other, whichever comes first (vllm_guard.py).
"""

from __future__ import annotations

import logging
import os
import secrets
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from ..errors import RolloutError

GUARD = Path(__file__).with_name("vllm_guard.py")
KEPT_LINES = 200  # of what the server says, for the reason of its death
LINE_LENGTH = 500  # characters; a longer line is cut
READ_BYTES = 65536  # of a line at once; a server may print one without an end
HEALTH_POLL_S = 0.5
CLOSE_WAIT_S = 10.0  # longer than the guard's own patience
BASE = "base"  # the name under which the server serves the base model

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class ServerCommand:
    """What to start."""

    python: str  # an interpreter that has vLLM
    model: str  # Hugging Face directory
    arguments: tuple[str, ...] = ()  # of vLLM's server, beside those that `words` adds
    env: Mapping[str, str] = field(default_factory=dict)  # beside our own environment

    def words(self, port: int) -> list[str]:
        """The console script is not used: builds under another distribution name break it."""
        return [
            *(self.python, "-m", "vllm.entrypoints.openai.api_server"),
            *("--model", self.model, "--served-model-name", BASE),
            *("--host", "127.0.0.1", "--port", str(port)),
            "--disable-uvicorn-access-log",
            *self.arguments,
        ]


class VllmServer:
    """One life of a server. Start another object for the next one."""

    def __init__(self, command: ServerCommand) -> None:
        """Starts it; `wait_until_healthy` says whether it came up. Raises: RolloutError."""
        self._port = free_port()
        self.api_key = secrets.token_urlsafe(32)
        self._said: deque[str] = deque(maxlen=KEPT_LINES)
        env = {
            "HF_HUB_OFFLINE": "1",
            "VLLM_NO_USAGE_STATS": "1",
            "VLLM_LOGGING_LEVEL": "WARNING",
            **os.environ,
            **command.env,
            "VLLM_ALLOW_RUNTIME_LORA_UPDATING": "True",
            "VLLM_API_KEY": self.api_key,  # arguments can be read by every user of the machine
        }
        words = command.words(self._port)
        if not os.access(command.python, os.X_OK):
            raise RolloutError(f"{command.python} is no Python interpreter that can be started.")
        self._guard = subprocess.Popen(
            [sys.executable, "-I", "-S", str(GUARD), *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=env,
            start_new_session=True,
        )
        threading.Thread(target=self._read, name="vllm's log", daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    @property
    def pid(self) -> int:
        """Of the guard, which is also the number of the process group."""
        return self._guard.pid

    @property
    def is_alive(self) -> bool:
        return self._guard.poll() is None

    @property
    def said(self) -> list[str]:
        """The last lines that it printed."""
        return list(self._said)

    def wait_until_healthy(self, timeout_s: float) -> None:
        """Raises: RolloutError if it ends, is closed, or is not healthy in time; it is closed."""
        end = time.monotonic() + timeout_s
        while not self._is_healthy():
            if not self.is_alive:
                raise RolloutError(f"vLLM ended while it started: {self.reason()}")
            if time.monotonic() > end:
                reason = self.reason()
                self.close()
                raise RolloutError(f"vLLM was not healthy after {timeout_s:.0f} s: {reason}")
            time.sleep(HEALTH_POLL_S)

    def reason(self) -> str:
        """The line that tells most about why it ended."""
        lines = [line for line in self.said if line.strip()]
        # vLLM reports the same fault from each process, outermost last; the first is the cause.
        causes = [line for line in lines if "Error: " in line or "error: " in line]
        return (causes or lines[-1:] or ["it said nothing"])[0]

    def close(self) -> None:
        """End the whole process group; returns when it is gone."""
        if self._guard.stdin:
            self._guard.stdin.close()
        try:
            self._guard.wait(CLOSE_WAIT_S)
        except subprocess.TimeoutExpired:
            os.killpg(self.pid, signal.SIGKILL)
            self._guard.wait()

    def _is_healthy(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.url}/health", timeout=5):  # noqa: S310 (loopback)
                return True
        except (OSError, urllib.error.URLError):
            return False

    def _read(self) -> None:
        """Also keeps the server from blocking on a full pipe."""
        output = self._guard.stdout
        assert output
        for line in iter(lambda: output.readline(READ_BYTES), b""):
            text = line.decode(errors="replace").rstrip()[:LINE_LENGTH]
            self._said.append(text)
            log.info("vllm: %s", text)


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]
