"""Templates with {{ sample.output_text }} and {{ item.column }}, as OpenAI's graders write them.

Values are inserted as text and never read again: braces in a completion mean nothing.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

from ..errors import GraderError
from ..parameters import shown
from .services import Sample

MAX_VARIABLES = 50
MAX_RENDERED_CHARACTERS = 500_000  # a template may name a long text many times

_VARIABLE = re.compile(r"\{\{([^{}]*)\}\}")  # no braces within, or {{{{… would take quadratic time
_OF_SAMPLE: dict[str, Callable[[Sample], Any]] = {
    "output_text": lambda sample: sample.completion,
    "transcript": lambda sample: sample.transcript,
    "messages": lambda sample: sample.messages,
}


def problem(template: str) -> str | None:
    """The sentence that says what is wrong with a template, if something is."""
    found = names(template)
    if len(found) > MAX_VARIABLES:
        return f"Names {len(found):,} variables; at most {MAX_VARIABLES} are allowed."
    if "{{" in _VARIABLE.sub("", template):
        return "Has a {{ without its }}."
    for name in found:
        root, _, path = name.partition(".")
        if root == "sample" and path not in _OF_SAMPLE:
            known = ", ".join(f"sample.{known}" for known in _OF_SAMPLE)
            return f"There is no variable {shown(name)}; of the sample there are {known}."
        if root not in ("sample", "item") or not path:
            return f"{shown(name)} is no variable; write sample.output_text or item.COLUMN."
    return None


def render(template: str, sample: Sample, mark: Callable[[str], str] = str) -> str:
    """The template with its variables replaced; mark: what to make of each value's text.

    item.a.b is the column a.b if there is one, else what column a, an object, has as b.
    Raises: GraderError if a variable has no value, or the text becomes too long.
    """
    texts = [mark(_text(value_of(name, sample))) for name in names(template)]
    size = len(template) + sum(map(len, texts))
    if size > MAX_RENDERED_CHARACTERS:
        raise GraderError(
            f"sample_parse_error: the filled-in template has about {size:,} characters; at most"
            f" {MAX_RENDERED_CHARACTERS:,} are allowed"
        )
    left = iter(texts)
    return _VARIABLE.sub(lambda _: next(left), template)


def value_of(name: str, sample: Sample) -> Any:
    """The value of a variable such as item.answer. Raises: GraderError if there is none."""
    root, _, path = name.partition(".")
    if root == "sample" and path in _OF_SAMPLE:
        return _OF_SAMPLE[path](sample)
    if root == "item" and path:
        return _walk(sample.row, path, name)
    raise GraderError(f"invalid_variable_error: there is no variable {shown(name)}")


@lru_cache(maxsize=256)
def names(template: str) -> tuple[str, ...]:
    """The variables that a template names, in order."""
    return tuple(name.strip() for name in _VARIABLE.findall(template))


def _walk(value: Any, path: str, name: str) -> Any:
    """What a path leads to: keys of objects, places in lists from 0."""
    while path:
        if isinstance(value, Mapping) and path in value:
            return value[path]
        key, _, path = path.partition(".")
        if isinstance(value, Mapping) and key in value:
            value = value[key]
        elif isinstance(value, list) and key.isascii() and key.isdigit() and len(key) < 7:
            value = value[int(key)] if int(key) < len(value) else _missing(name)
        else:
            _missing(name)
    return value


def _missing(name: str) -> Any:
    raise GraderError(f"invalid_variable_error: the row has no {shown(name)}")


def _text(value: Any) -> str:
    """A value as text: text as it is, everything else as JSON."""
    if isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False, default=str)
