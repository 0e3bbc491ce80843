"""Which reward functions there are, and the only way from a person's list to them.

To add one: a frozen dataclass with `name`, `weight`, its parameters and one of the two methods that
`grader.py` describes, and its line here.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, fields
from typing import Any

from ..errors import SpecError
from ..parameters import convert, describe, number, shown, text, unknown
from .code import Code
from .environment_score import EnvironmentScore
from .grader import Grader
from .judge import ScoreModel
from .length import Length
from .math_answer import Math
from .multi import Multi
from .numeric import Numeric
from .pattern import Regex
from .python_source import PythonSource
from .reasoning_gym import ReasoningGym
from .remote import Remote
from .schema import JSONSchema
from .string_check import StringCheck
from .tags import Format
from .text_similarity import TextSimilarity
from .tool_use import ToolUse

MAX_GRADERS = 8
MAX_NAME_CHARACTERS = 50
MAX_KEYS = 20  # of one reward function; more are not looked at
WEIGHT_LIMITS = {"low": -1000.0, "high": 1000.0}


GRADERS: dict[str, type[Any]] = {
    "string_check": StringCheck,
    "text_similarity": TextSimilarity,
    "numeric": Numeric,
    "math": Math,
    "regex": Regex,
    "json_schema": JSONSchema,
    "format": Format,
    "length": Length,
    "tool_use": ToolUse,
    "reasoning_gym": ReasoningGym,
    "environment": EnvironmentScore,
    "multi": Multi,
    "python": PythonSource,
    "code": Code,
    "remote": Remote,
    "score_model": ScoreModel,
}
# Names that stored tasks or other tools use
ALIASES = {"exact": "string_check", "judge": "score_model", "verifiers": "environment"}


def catalogue() -> list[dict[str, Any]]:
    """Every reward function with its parameters, as plain values, for forms and documents."""
    return [
        {"type": kind, "help": (cls.__doc__ or "").strip(), "parameters": describe(cls)}
        for kind, cls in GRADERS.items()
    ]


def dump_graders(graders: tuple[Grader, ...]) -> list[dict[str, Any]]:
    """Plain mappings that `parse_graders` reads back to equal reward functions."""
    kinds = {cls: kind for kind, cls in GRADERS.items()}
    return [{"type": kinds[type(grader)], **_values(grader)} for grader in graders]


def _values(grader: Any) -> dict[str, Any]:
    """A reward function's fields; JSON objects as such, not as the texts that they are kept as."""
    texts = [spec.name for spec in fields(grader) if "json" in spec.metadata]
    values = asdict(grader)
    return values | {name: json.loads(values[name]) for name in texts}


def grader_digest(graders: Sequence[Grader]) -> str:
    """SHA-256 of what these reward functions are, in hexadecimal; equal lists have equal ones."""
    text = json.dumps(dump_graders(tuple(graders)), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def parse_graders(items: list[Any]) -> tuple[Grader, ...]:
    """A person's list of mappings to reward functions, at most eight with unique names.

    A mapping has `type`, and may have `name` (the type, if absent), `weight` (1) and parameters.
    Raises: SpecError with every wrong field at once, under paths like `graders.0.pattern`.
    """
    if not isinstance(items, (list, tuple)) or not items:
        raise SpecError({"graders": ["Must be a list of at least one reward function."]})
    if len(items) > MAX_GRADERS:
        raise SpecError({"graders": [f"At most {MAX_GRADERS} are allowed, not {len(items)}."]})
    errors: dict[str, list[str]] = {}
    graders: list[Grader] = []
    for place, item in enumerate(items):
        grader, wrong = parse_grader(item)
        errors.update({f"graders.{place}{path}": [message] for path, message in wrong.items()})
        if grader is not None:
            if grader.name in {other.name for other in graders}:
                errors[f"graders.{place}.name"] = [f"Another one is named {shown(grader.name)}."]
            graders.append(grader)
    if not errors and not any(grader.weight for grader in graders):
        errors["graders"] = ["At least one needs a weight other than 0."]
    if errors:
        raise SpecError(errors)
    return tuple(graders)


def parse_grader(item: Any) -> tuple[Grader | None, dict[str, str]]:
    """A reward function, or what is wrong with it by path below its place in the list."""
    if not isinstance(item, dict) or len(item) > MAX_KEYS:
        return None, {"": 'Must be an object such as {"type": "numeric", "target": "answer"}.'}
    kind = item.get("type")
    if not isinstance(kind, str) or ALIASES.get(kind, kind) not in GRADERS:
        return None, {".type": f"Must be one of {', '.join(GRADERS)}, not {shown(kind)}."}
    cls = GRADERS[ALIASES.get(kind, kind)]
    values: dict[str, Any] = {"name": kind}
    errors: dict[str, str] = {}
    for key, value in item.items():
        try:
            if key != "type":
                values[key] = _value(cls, key, value)
        except ValueError as error:
            errors[f".{key[:MAX_NAME_CHARACTERS]}"] = str(error)
    if errors:
        return None, errors
    grader = cls(**values)
    wrong = grader.check() if hasattr(grader, "check") else {}
    return grader, {f".{key}": message for key, message in wrong.items()}


def _value(cls: type[Any], key: str, value: Any) -> Any:
    """One value of a mapping. Raises ValueError with the full sentence."""
    if key == "name":
        name = text(value, MAX_NAME_CHARACTERS).strip()
        if not name:
            raise ValueError("Must not be empty.")
        return name
    if key == "weight":
        return number(value, WEIGHT_LIMITS, is_whole=False)
    specs = {spec.name: spec for spec in fields(cls) if spec.metadata}
    if key not in specs:
        raise ValueError(unknown("parameter", key, ("name", "weight", *specs), {}))
    return convert(specs[key], value)
