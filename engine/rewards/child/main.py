"""A child of `workers.py`: answers calls of the few functions in the table, one JSON line each.

A call that uses more processor time than it may ends this process, even inside C code: the timer's
signal is left at what it does by default. So an orphan cannot run on either.
"""

from __future__ import annotations

import importlib
import json
import os
import resource
import signal
import sys
from collections.abc import Callable
from typing import Any, BinaryIO

FUNCTIONS = {
    "math": ("mathematics", "score"),
    "math_is_readable": ("mathematics", "is_readable"),
    "json_schema": ("schemas", "is_valid"),
    "reasoning_gym": ("problems", "score"),
    "reasoning_gym_is_usable": ("problems", "is_usable"),
}
NICE = 5  # the engine's own processes go first
NUM_FILES = 64


def main() -> None:
    """Load what the functions need, say so, and answer until the input ends."""
    answers = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # whatever a library prints goes nowhere
    sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
    table = {
        name: getattr(importlib.import_module(module), function)
        for name, (module, function) in FUNCTIONS.items()
    }
    _limit(int(sys.argv[1]) * 2**20)
    answers.write(b'"ready"\n')
    serve(sys.stdin.buffer, answers, table)


def serve(requests: BinaryIO, answers: BinaryIO, table: dict[str, Callable[..., Any]]) -> None:
    """Answer every line of the input."""
    for line in requests:
        request = json.loads(line)
        signal.setitimer(signal.ITIMER_PROF, request["cpu_s"])
        answer = _answer(table[request["function"]], request["arguments"])
        signal.setitimer(signal.ITIMER_PROF, 0)
        answers.write(json.dumps(answer).encode() + b"\n")
        if answer.get("overrun") == "memory":
            return  # what is left of the libraries' state after that, nobody knows


def _answer(function: Callable[..., Any], arguments: dict[str, Any]) -> dict[str, Any]:
    try:
        return {"value": function(**arguments)}
    except MemoryError:
        return {"overrun": "memory"}
    except RecursionError:
        return {"overrun": "depth"}
    except Exception as error:
        return {"error": type(error).__name__}


def _limit(memory_bytes: int) -> None:
    limits = {
        resource.RLIMIT_AS: memory_bytes,
        resource.RLIMIT_DATA: memory_bytes,
        resource.RLIMIT_FSIZE: 0,
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_NOFILE: NUM_FILES,
    }
    for which, limit in limits.items():
        try:
            resource.setrlimit(which, (limit, limit))
        except (ValueError, OSError):  # not every system has every one
            continue
    os.nice(NICE)


if __name__ == "__main__":
    main()
