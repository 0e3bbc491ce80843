"""JSON from strangers: what Python's reader lets through is refused, with a sentence that says why.

Refused beyond syntax: keys that come twice, NaN and infinities, numbers too large for a float,
nesting that exhausts a stack, and text that cannot be stored (lone surrogates, NUL).
"""

from __future__ import annotations

import json
import math
from typing import Any

from engine.parameters import shown

MAX_DEPTH = 32


class JSONProblem(ValueError):
    """Why a text is refused. `column` counts characters from 1; 0: no particular place."""

    def __init__(self, message: str, column: int = 0) -> None:
        self.column = column
        super().__init__(message)


class LoneSurrogate(JSONProblem):
    """Half of a surrogate pair, which no file can hold; `loads` can replace it."""


def loads(text: str, *, mend: bool = False) -> Any:
    """The value of a JSON text. Raises: JSONProblem with a full sentence.

    mend: put U+FFFD for half a surrogate pair, instead of raising LoneSurrogate.
    """
    try:
        value = json.loads(
            text,
            object_pairs_hook=_object,
            parse_constant=_constant,
            parse_float=_float,
            parse_int=_int,
        )
    except JSONProblem:
        raise
    except json.JSONDecodeError as error:
        column = error.pos + 1
        raise JSONProblem(f"Not JSON at character {column}: {error.msg}.", column) from None
    except RecursionError:
        raise JSONProblem(f"Nested more than {MAX_DEPTH} deep.") from None
    if mend:
        value = _mended(value, MAX_DEPTH)
    _check(value, MAX_DEPTH)
    return value


def _mended(value: Any, depth: int) -> Any:
    """The value with U+FFFD for every lone surrogate; what is too deep is left for `_check`."""
    if isinstance(value, str):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if depth and isinstance(value, dict):
        return _object([(_mended(k, 0), _mended(v, depth - 1)) for k, v in value.items()])
    if depth and isinstance(value, list):
        return [_mended(item, depth - 1) for item in value]
    return value


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise JSONProblem(f"The key {shown(_repeated(pairs))} comes twice.")
    return found


def _repeated(pairs: list[tuple[str, Any]]) -> str:
    """The first key that came before; in one pass, for a stranger chooses how many there are."""
    seen: set[str] = set()
    for key, _ in pairs:
        if key in seen:
            return key
        seen.add(key)
    raise AssertionError("no key comes twice")


def _constant(name: str) -> Any:
    raise JSONProblem(f"{name} is not JSON; use null, or leave the key out.")


def _float(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise JSONProblem(f"The number {text[:30]} is too large.")
    return value


def _int(text: str) -> int:
    if len(text) > 300:
        raise JSONProblem(f"The number {text[:30]}… is too large.")
    return int(text)


def _check(value: Any, depth: int) -> None:
    """Raises JSONProblem where a value is too deep or holds text that cannot be stored."""
    if depth == 0:
        raise JSONProblem(f"Nested more than {MAX_DEPTH} deep.")
    if isinstance(value, str):
        _check_text(value)
    elif isinstance(value, dict):
        for key, item in value.items():
            _check_text(key)
            _check(item, depth - 1)
    elif isinstance(value, list):
        for item in value:
            _check(item, depth - 1)


def _check_text(text: str) -> None:
    if "\0" in text:
        raise JSONProblem("Text must not contain the character NUL (\\u0000).")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        mark = f"\\u{ord(text[error.start]):04x}"
        raise LoneSurrogate(f"{mark} is half of a surrogate pair and no character.") from None
