"""Validity of JSON documents, for `schema.py`. It sets no time limits of its own."""

from __future__ import annotations

import json
from functools import lru_cache
from typing import Any

from jsonschema import Draft202012Validator, validators
from referencing import Registry

MAX_DEPTH = 32  # of a document; a schema that refers to itself goes as deep
KNOWN_SCHEMAS = 64


def is_valid(schema: str, document: str) -> bool:
    """Whether the text is JSON that the schema allows."""
    try:
        value = json.loads(document, parse_constant=_refused)
    except (ValueError, RecursionError):
        return False
    return _is_within(value, MAX_DEPTH) and bool(_validator(schema).is_valid(value))


@lru_cache(maxsize=KNOWN_SCHEMAS)
def _validator(schema: str) -> Any:
    """An empty registry: without one, references to other addresses would be fetched."""
    value = json.loads(schema)
    cls = validators.validator_for(value, default=Draft202012Validator)
    return cls(value, registry=Registry())


def _is_within(value: Any, depth: int) -> bool:
    if not isinstance(value, (dict, list)):
        return True
    inner = value.values() if isinstance(value, dict) else value
    return depth > 0 and all(_is_within(one, depth - 1) for one in inner)


def _refused(name: str) -> None:
    raise ValueError(f"{name} is no JSON")
