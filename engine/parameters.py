"""Parameters that strangers set: typed, limited, and explained, in the fields of a dataclass.

`parameter` declares one, `convert` reads a person's value for it, `describe` tells a form or a
document about it. Nothing here knows what the parameters are for.
"""

from __future__ import annotations

import difflib
import json
import math
import re
import unicodedata
from collections.abc import Iterable, Mapping
from dataclasses import Field, field, fields
from typing import Any

from .json_objects import canonical_object

SHOWN_CHARACTERS = 60
EXACT = 2.0**53  # whole numbers below it are those that were sent
NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?|[+-]?(nan|inf(inity)?)", re.I | re.A)
_REFUSED = ("Cc", "Cs", "Zl", "Zp")  # Unicode categories
# Embeddings, overrides and isolates: with them a name can show as another one.
_DIRECTIONS = frozenset(chr(code) for code in (*range(0x202A, 0x202F), *range(0x2066, 0x206A)))


def parameter(default: Any, help: str, **limits: Any) -> Any:
    """A dataclass field whose type is its default's.

    limits: `low`, `high` (inclusive), `above` (exclusive), `choices`, `max_length` (characters),
    `json` (a JSON object, kept as its canonical text), `is_multiline` (line breaks may be in it).
    """
    return field(default=default, metadata={"help": help, **limits})


def convert(spec: Field[Any], value: Any) -> Any:
    """A person's value to the field's type. Raises ValueError with the full sentence."""
    limits = spec.metadata
    if "choices" in limits:
        return choice(value, limits["choices"])
    if isinstance(spec.default, bool):
        return _truth(value)
    if "json" in limits:
        return canonical_object(value, limits["max_length"])
    if isinstance(spec.default, str):
        is_multiline = limits.get("is_multiline", False)
        return text(value, limits.get("max_length", 100), is_multiline=is_multiline)
    return number(value, limits, is_whole=isinstance(spec.default, int))


def choice(value: Any, choices: tuple[str, ...]) -> str:
    """The value if it is one of the choices. Raises ValueError with the full sentence."""
    if value not in choices:
        raise ValueError(f"Must be one of {', '.join(choices)}, not {shown(value)}.")
    return value


def text(value: Any, max_length: int, *, is_multiline: bool = False) -> str:
    """Text that can be stored. Raises ValueError with the full sentence.

    Line breaks of other systems become newlines where there may be any.
    """
    if not isinstance(value, str):
        raise ValueError(f"Must be text, not {shown(value)}.")
    if len(value) > max_length:
        raise ValueError(f"Must have at most {max_length} characters, not {len(value):,}.")
    if is_multiline:
        value = value.replace("\r\n", "\n").replace("\r", "\n")
    marks = value.translate({9: None, 10: None}) if is_multiline else value
    if any(unicodedata.category(mark) in _REFUSED or mark in _DIRECTIONS for mark in marks):
        raise ValueError(
            "Must not contain control characters, line separators, marks that turn the direction"
            " of writing, or lone surrogates."
        )
    return value


def number(value: Any, limits: Mapping[str, Any], *, is_whole: bool) -> Any:
    """A number, or its text, within the limits. Raises ValueError with the full sentence."""
    found = _parse_number(value, is_whole)
    # where digits would be made up, or fill a page, it is quoted as it was sent
    said = f"{found:,}" if abs(found) < EXACT else shown(value)
    if "above" in limits and not found > limits["above"]:
        raise ValueError(f"Must be above {limits['above']:,}, not {said}.")
    if "low" in limits and found < limits["low"]:
        raise ValueError(f"Must be at least {limits['low']:,}, not {said}.")
    if "high" in limits and found > limits["high"]:
        raise ValueError(f"Must be at most {limits['high']:,}, not {said}.")
    return found


def _parse_number(value: Any, is_whole: bool) -> Any:
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        raise ValueError(f"Must be a number, not {shown(value)}.")
    try:
        if isinstance(value, str) and not NUMBER.fullmatch(value.strip()):
            raise ValueError  # Python takes 1_0 and other alphabets' digits, too
        found = float(value)
    except (ValueError, OverflowError):
        raise ValueError(f"Must be a number, not {shown(value)}.") from None
    if not math.isfinite(found):
        raise ValueError(f"Must be a finite number, not {shown(value)}.")
    if is_whole and found != int(found):
        raise ValueError(f"Must be a whole number, not {shown(value)}.")
    return int(found) if is_whole else found


def _truth(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value.lower() in ("true", "false"):
        return value.lower() == "true"
    raise ValueError(f"Must be true or false, not {shown(value)}.")


def unknown(kind: str, key: str, known: Iterable[str], aliases: Mapping[str, str]) -> str:
    """The sentence for a key that does not exist; names the nearest one that does."""
    near = difflib.get_close_matches(key[:SHOWN_CHARACTERS], [*known, *aliases], n=1, cutoff=0.5)
    hint = f" Did you mean {aliases.get(near[0], near[0])}?" if near else ""
    return f"There is no {kind} {shown(key)}.{hint}"


def shown(value: Any) -> str:
    """A stranger's value, as short as a message may quote it."""
    if isinstance(value, (list, tuple)):
        return "a list"
    if isinstance(value, dict):
        return "an object"
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    try:
        quoted = repr(value)
    except ValueError:  # an integer of more than 4,300 digits
        return "a very long number"
    return quoted if len(quoted) <= SHOWN_CHARACTERS else f"{quoted[: SHOWN_CHARACTERS - 1]}…"


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def describe(cls: type) -> list[dict[str, Any]]:
    """The parameters of a dataclass, as plain values: name, type, default, help and limits.

    A default that is no plain value has `written` beside its help: what a person would write.
    """
    kinds = {bool: "boolean", int: "integer", float: "number", str: "string", tuple: "array"}
    return [
        {
            "name": spec.name,
            "type": kinds.get(type(spec.default), "object"),
            "default": _plain(spec.metadata.get("written", spec.default)),
            **{key: _plain(value) for key, value in spec.metadata.items() if key != "written"},
        }
        | (_as_object(spec) if "json" in spec.metadata else {})
        for spec in fields(cls)
        if spec.metadata
    ]


def _as_object(spec: Field[Any]) -> dict[str, Any]:
    return {"type": "object", "default": json.loads(str(spec.default))}
