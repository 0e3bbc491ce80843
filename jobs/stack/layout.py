"""Where a stack keeps its files, and which ports it uses. Knows nothing of Django.

Everything hangs on one directory (MARLAAS_VAR), so stacks with different ones run side by side.
"""

from __future__ import annotations

import errno
import json
import os
import random
import socket
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# Below the range from which systems give ports to outgoing connections (32768 on Linux, 49152
# elsewhere): while Redis restarts, nobody's connection can take its port by chance.
PRIVATE_PORTS = range(20_000, 30_000)
REPOSITORY = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Layout:
    """Paths of a stack."""

    var: Path

    @property
    def run(self) -> Path:
        """Records of running processes; may be deleted while nothing runs."""
        return self.var / "run"

    @property
    def records(self) -> Path:
        """NAME.json for each program, written by its guard."""
        return self.run / "programs"

    @property
    def log(self) -> Path:
        return self.var / "log"

    @property
    def supervisor_config(self) -> Path:
        return self.run / "supervisord.conf"

    @property
    def supervisor_pid_file(self) -> Path:
        return self.run / "supervisord.pid"

    @property
    def lock(self) -> Path:
        """Held by the one `manage.py run` of this directory."""
        return self.run / "lock"

    @property
    def announcement(self) -> Path:
        """What the last start told: url, and programs."""
        return self.run / "stack.json"

    @property
    def logins(self) -> Path:
        return self.var / "demo-logins.txt"

    def make_directories(self) -> None:
        self.var.mkdir(mode=0o700, parents=True, exist_ok=True)  # it holds tenants' data
        for path in (self.run, self.records, self.log):
            path.mkdir(parents=True, exist_ok=True)

    def announce(self, **facts: Any) -> None:
        """Leave facts about the running stack for other commands."""
        write_whole(self.announcement, json.dumps(facts))

    def announced(self) -> dict[str, Any]:
        """Facts of the last start; {} if there was none."""
        try:
            return json.loads(self.announcement.read_text())
        except (OSError, ValueError):
            return {}


def kept_redis_port(var: Path) -> int:
    """The port of this directory's private Redis: chosen once, so that clients find it again."""
    path = Layout(var).run / "redis-port"
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        return choose_redis_port(var)


def choose_redis_port(var: Path) -> int:
    """Choose a free port for the private Redis and keep it."""
    path = Layout(var).run / "redis-port"
    path.parent.mkdir(parents=True, exist_ok=True)
    port = next(p for p in random.sample(PRIVATE_PORTS, len(PRIVATE_PORTS)) if is_free(p))
    write_whole(path, str(port))
    return port


def is_free(port: int, host: str = "127.0.0.1") -> bool:
    """Whether a server could listen on this port now."""
    return not port_problem(port, host)


def port_problem(port: int, host: str = "127.0.0.1") -> str:
    """Why no server could listen on this port now, in words; "" if one could."""
    if not 1 <= port <= 65_535:
        return "does not exist (they go from 1 to 65535)"
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except PermissionError:
            return "is for root only"
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                return "is in use by another program"
            return f"of {host} cannot be used ({error.strerror or error})"
    return ""


def write_whole(path: Path, text: str, mode: int = 0o644) -> None:
    """Write a small file so that readers see the old text or the new, never a part."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
    with os.fdopen(handle, "w") as file:
        file.write(text)
    os.replace(temporary, path)
