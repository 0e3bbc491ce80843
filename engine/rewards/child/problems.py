"""Scores of reasoning-gym's own scorers, for `reasoning_gym.py`. It sets no time limits of its own.

The library is loaded when the first completion comes: most children never need it. While a scorer
runs, nothing is compiled and no code is run from text, whatever the scorer would do: the
interpreter itself refuses.
"""

from __future__ import annotations

import contextlib
import sys
import types
from collections.abc import Iterator
from functools import cache
from typing import Any

REFUSED_EVENTS = ("compile", "exec", "os.system", "subprocess.Popen", "socket.connect")
BOARDS = ("arc_agi", "rearc")  # compared as tuples; JSON knows only lists

_is_scoring = False


def score(task: str, answer: str, entry: dict[str, Any]) -> float | None:
    """The scorer's value; None: it can do nothing with the entry."""
    scorer, entry = _scorer(task), _restored(task, entry)
    try:
        with _nothing_compiled():
            return float(scorer.score_answer(answer, entry))
    except (MemoryError, RecursionError):
        raise
    except Exception:  # it stumbles over the answer, or over the entry
        return 0.0 if is_usable(task, entry) else None


def is_usable(task: str, entry: dict[str, Any]) -> bool:
    """Whether the scorer can do with the entry what it does with an answer that is none."""
    known = entry["answer"]
    try:
        with _nothing_compiled():
            _scorer(task).score_answer("" if known is None else known, _restored(task, entry))
    except (MemoryError, RecursionError):
        raise
    except Exception:
        return False
    return True


@cache
def _scorer(task: str) -> Any:
    """One of the library's data sets, of which only the scorer is used."""
    # Draws cellular automata and loads a plotting library for it, which no scorer needs.
    sys.modules.setdefault("cellpylib", types.ModuleType("cellpylib"))
    import reasoning_gym

    return reasoning_gym.create_dataset(task)


def _restored(task: str, entry: dict[str, Any]) -> dict[str, Any]:
    """The entry as the library made it, before it was JSON."""
    if task not in BOARDS:
        return entry
    metadata = entry["metadata"]
    board = tuple(tuple(row) for row in metadata["output"])
    return {**entry, "metadata": {**metadata, "output": board}}


@contextlib.contextmanager
def _nothing_compiled() -> Iterator[None]:
    global _is_scoring
    _is_scoring = True
    try:
        yield
    finally:
        _is_scoring = False


def _refuse(event: str, arguments: Any) -> None:
    if _is_scoring and event in REFUSED_EVENTS:
        raise PermissionError(f"a scorer may not {event}")


sys.addaudithook(_refuse)
