"""What a client may say on a live socket, checked before anything acts on it."""

from __future__ import annotations

import json
import time
from collections import deque
from dataclasses import dataclass
from typing import Any

MAX_MESSAGES = 20  # in 10 s
MAX_BYTES = 16 * 1024  # a message
MAX_NAME = 60  # of a stream
OPS = ("sub", "unsub", "pong")


class Closed(Exception):
    """The socket ends with this code; None if the client has gone."""

    def __init__(self, code: int | None) -> None:
        self.code = code
        super().__init__(code)


@dataclass(frozen=True)
class Command:
    """sub (a stream from a position on), unsub, or pong."""

    op: str
    stream: str = ""
    epoch: str = ""
    since: int = 0


class CommandReader:
    """Parses the messages of one socket and holds them to their limits."""

    def __init__(self) -> None:
        self.times: deque[float] = deque(maxlen=MAX_MESSAGES)

    def read(self, event: dict[str, Any]) -> Command:
        """Raises Closed: 1008 for what is no command or comes too often, 1009 if it is too long."""
        text = event.get("text") or ""
        if len(text) > MAX_BYTES or event.get("bytes"):
            raise Closed(1009)
        now = time.monotonic()
        if len(self.times) == MAX_MESSAGES and now - self.times[0] < 10:
            raise Closed(1008)
        self.times.append(now)
        try:
            return parse(json.loads(text))
        except (ValueError, RecursionError):
            raise Closed(1008) from None


def parse(data: Any) -> Command:
    """A decoded message to a command. Raises ValueError."""
    if not isinstance(data, dict) or data.get("op") not in OPS:
        raise ValueError("not a command")
    if data["op"] == "pong":
        return Command("pong")
    stream, epoch, since = data.get("stream"), data.get("epoch", ""), data.get("since", 0)
    if not isinstance(stream, str) or len(stream) > MAX_NAME or not isinstance(epoch, str):
        raise ValueError("not a stream's position")
    if isinstance(since, bool) or not isinstance(since, int) or not 0 <= since < 2**62:
        raise ValueError("not a stream's position")
    return Command(data["op"], stream, epoch, since)
