"""JSON objects that strangers give as a setting, kept as one canonical text.

As text they can stand in frozen settings, be compared and be digested. What cannot be stored or
would be read differently elsewhere (NaN, halves of surrogate pairs, NUL) is refused.
"""

from __future__ import annotations

import json
import math
from typing import Any

MAX_DEPTH = 32


def checked_object(value: Any, max_length: int) -> dict[str, Any]:
    """The object, or what its text says, if it can be stored. Raises: ValueError with a sentence.

    max_length: characters of a text.
    """
    if isinstance(value, str):
        if len(value) > max_length:
            raise ValueError(f"Must have at most {max_length:,} characters, not {len(value):,}.")
        value = _read(value)
    if not isinstance(value, dict):
        raise ValueError('Must be a JSON object, such as {"type": "object"}.')
    _check(value, MAX_DEPTH)
    return value


def canonical_object(value: Any, max_length: int) -> str:
    """The object, or its text, as text with sorted keys. Raises: ValueError with a sentence."""
    value = checked_object(value, max_length)
    text = json.dumps(value, ensure_ascii=False, sort_keys=True, separators=(",", ":"))
    if len(text) > max_length:
        raise ValueError(f"Must have at most {max_length:,} characters, not {len(text):,}.")
    return text


def _read(text: str) -> Any:
    try:
        return json.loads(text, object_pairs_hook=_object, parse_int=_whole)
    except json.JSONDecodeError as error:
        raise ValueError(f"Is not JSON: {error.msg} at character {error.pos + 1}.") from None
    except RecursionError:
        raise ValueError(f"Must not be nested more than {MAX_DEPTH} deep.") from None


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("Must not have a key twice in an object.")
    return found


def _whole(digits: str) -> int:
    try:
        return int(digits)
    except ValueError:  # more than 4,300 digits
        raise ValueError("Must not contain a number with too many digits.") from None


def _check(value: Any, depth: int) -> None:
    """Raises: ValueError for what is too deep, or cannot be stored."""
    if depth < 0:
        raise ValueError(f"Must not be nested more than {MAX_DEPTH} deep.")
    if isinstance(value, dict):
        for key, inner in value.items():
            if not isinstance(key, str):
                raise ValueError("Must have text as keys.")
            _check(key, 0)
            _check(inner, depth - 1)
    elif isinstance(value, list):
        for inner in value:
            _check(inner, depth - 1)
    elif isinstance(value, str):
        if any(mark == "\0" or "\ud800" <= mark <= "\udfff" for mark in value):
            raise ValueError("Must not contain NUL characters or lone surrogates.")
    elif isinstance(value, float) and not math.isfinite(value):
        raise ValueError("Must not contain NaN or infinite numbers.")
    elif value is not None and not isinstance(value, (bool, int, float)):
        raise ValueError(f"Must not contain a {type(value).__name__}.")
