"""Waits for a stack to be ready, by asking its web process. Knows nothing of Django."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from pathlib import Path

LOG_LINES = 12


def missing_parts(url: str, host: str = "") -> list[str]:
    """What is not there yet, in words; [] if the stack is ready.

    url: of the web process. host: what it is to be called, where not by the url's own name.
    """
    request = urllib.request.Request(f"{url}health/ready")  # noqa: S310 (our own http url)
    if host:
        request.add_header("Host", host)
    try:
        with _DIRECT.open(request, timeout=3) as answer:
            return json.load(answer)["missing"]
    except urllib.error.HTTPError as error:
        if error.code != 503:
            return [f"web (it answers {error.code})"]
        return json.load(error)["missing"]
    except (OSError, ValueError):
        return ["web"]


_DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # never by way of a proxy


def log_of(part: str, log_dir: Path) -> Path:
    """The log that tells why a part is missing: "rollout worker of tiny" is rollout-tiny.log."""
    words = part.split()
    kind = (
        words[0] if words[0] in {"redis", "rollout", "training", "environment", "planning"} else ""
    )
    name = f"rollout-{words[-1]}" if kind == "rollout" else kind or "web"
    return log_dir / f"{name}.log"


def last_lines(path: Path, num_lines: int = LOG_LINES) -> str:
    """The end of a log file; "" if there is none."""
    try:
        return "\n".join(path.read_text(errors="replace").splitlines()[-num_lines:])
    except OSError:
        return ""
