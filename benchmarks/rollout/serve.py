"""The child's side of `process`: answers calls of functions of this package, one at a time."""

from __future__ import annotations

import importlib
import json
import os
import queue
import sys
import threading
import traceback
from typing import Any

_answers: int | None = None  # file descriptor


def say(text: str) -> None:
    """Progress, for people; printed by the parent."""
    _answer({"say": text})


def serve() -> None:
    """Answer until the parent is gone. The pipe's descriptor is the first argument."""
    global _answers
    _answers = int(sys.argv[1])
    lines: queue.Queue[str] = queue.Queue()
    threading.Thread(target=_read, args=[lines], daemon=True).start()
    while True:
        request = json.loads(lines.get())
        try:
            result = _function(request["call"])(**request["with"])
            _answer({"result": result})
        except Exception as error:
            traceback.print_exc()
            _answer({"error": f"{type(error).__name__}: {error}"})


def _read(lines: queue.Queue[str]) -> None:
    """A parent that was killed must not leave a child at work on what nobody waits for."""
    for line in sys.stdin:
        lines.put(line)
    os._exit(0)


def _function(name: str) -> Any:
    module, _, function = name.rpartition(".")
    return getattr(importlib.import_module(f"{__package__}.{module}"), function)


def _answer(value: dict[str, Any]) -> None:
    if _answers is not None:
        os.write(_answers, json.dumps(value).encode() + b"\n")
    elif "say" in value:
        print(value["say"], flush=True)


if __name__ == "__main__":
    # The functions import this module by its name, and must find the same one.
    sys.modules[f"{__package__}.serve"] = sys.modules["__main__"]
    serve()
