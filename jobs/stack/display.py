"""Words on a terminal: lines that stay, and one line below them that changes."""

from __future__ import annotations

import shutil
import sys
import time
from typing import TextIO

PLAIN_INTERVAL_S = 10.0  # where there is no terminal, a changed line is printed so often at most


class Display:
    """Writes to one stream. Without a terminal the changing line becomes a line now and then."""

    def __init__(self, stream: TextIO = sys.stdout) -> None:
        self._stream = stream
        self._is_terminal = stream.isatty()
        self._line = ""
        self._printed_at = float("-inf")

    def say(self, text: str = "") -> None:
        """A line that stays."""
        clear = "\r\x1b[K" if self._is_terminal and self._line else ""
        self._line = ""
        self._stream.write(f"{clear}{text}\n")
        self._stream.flush()

    def show(self, text: str) -> None:
        """The line that changes."""
        if self._is_terminal:
            width = shutil.get_terminal_size().columns - 1
            self._line = text if len(text) <= width else f"{text[: width - 1]}…"
            self._stream.write(f"\r\x1b[K{self._line}")
            self._stream.flush()
        elif text != self._line and time.monotonic() - self._printed_at >= PLAIN_INTERVAL_S:
            self._printed_at = time.monotonic()
            self.say(text)
            self._line = text
