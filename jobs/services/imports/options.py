"""What a person may choose about an import; everything else is found in the file itself."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from engine.errors import SpecError
from engine.parameters import shown, text
from jobs import strict_json

from .json_rows import told
from .text import ENCODINGS

KINDS = ("prompts", "corpus")
FORMATS = ("jsonl", "json", "csv", "tsv", "parquet")
ROLES = {
    "prompts": ("prompt", "answer", "system", "input"),
    "corpus": ("title", "text"),
}
MAX_PATH_CHARACTERS = 200


@dataclass(frozen=True)
class Options:
    """kind: prompts for tasks, or a corpus of documents for the search tool.

    on_bad_rows: `stop` stores nothing, `skip` leaves them out. encoding, format: "" for what the
    file tells. mapping: which column, or dotted path into one, is the prompt, the answer, …; {}
    for what is found, and so is each role that it lacks. eval_fraction: share of the prompts set
    aside, 0 to 0.5. has_header: of CSV.
    """

    kind: str = "prompts"
    on_bad_rows: str = "stop"
    encoding: str = ""
    format: str = ""
    mapping: dict[str, str] = field(default_factory=dict)
    eval_fraction: float = 0.0
    has_header: bool = True

    def to_json(self) -> dict[str, Any]:
        """Plain values that `parse_options` takes."""
        return asdict(self)


def parse_options(values: Mapping[str, Any]) -> Options:
    """A person's choices; absent and empty ones keep their default. Raises: SpecError."""
    errors: dict[str, list[str]] = {}
    kind = _one_of(values, "kind", KINDS, errors) or "prompts"
    found: dict[str, Any] = {
        "kind": kind,
        "on_bad_rows": _one_of(values, "on_bad_rows", ("stop", "skip"), errors) or "stop",
        "encoding": _one_of(values, "encoding", ENCODINGS, errors),
        "format": _one_of(values, "format", FORMATS, errors),
        "mapping": _mapping(values.get("mapping"), kind, errors),
        "eval_fraction": _fraction(values.get("eval_fraction"), errors),
        "has_header": _one_of(values, "has_header", ("true", "false"), errors) != "false",
    }
    if kind == "corpus" and found["eval_fraction"]:
        errors["eval_fraction"] = ["A corpus is searched, not trained on; it is not split."]
    if errors:
        raise SpecError(errors)
    return Options(**found)


def _one_of(
    values: Mapping[str, Any], name: str, known: tuple[str, ...], errors: dict[str, list[str]]
) -> str:
    value = values.get(name)
    if value is None or value == "":
        return ""
    plain = str(value).lower() if isinstance(value, (str, bool)) else value
    if plain in known:
        return str(plain)
    errors[name] = [f"Must be one of {', '.join(known)}, not {shown(value)}."]
    return ""


def _fraction(value: Any, errors: dict[str, list[str]]) -> float:
    if value is None or value == "":
        return 0.0
    try:
        fraction = float(value) if not isinstance(value, bool) else -1.0
    except (TypeError, ValueError, OverflowError):
        fraction = -1.0
    if not 0 <= fraction <= 0.5:
        errors["eval_fraction"] = [f"Must be a number from 0 to 0.5, not {shown(value)}."]
        return 0.0
    return fraction


def _mapping(value: Any, kind: str, errors: dict[str, list[str]]) -> dict[str, str]:
    """{"prompt": "question"}, as an object or as its JSON text; empty places are left out."""
    try:
        if isinstance(value, str) and value.strip():
            value = _parsed(value)
        if value is None or value == "":
            return {}
        if not isinstance(value, dict):
            raise ValueError(
                f'Must be an object such as {{"prompt": "question"}}, not {shown(value)}.'
            )
        for role, path in value.items():
            if role not in ROLES[kind]:
                known = ", ".join(ROLES[kind])
                raise ValueError(f"There is no {shown(role)} in it; there are {known}.")
            text(path, MAX_PATH_CHARACTERS)
    except ValueError as error:
        errors["mapping"] = [str(error)]
        return {}
    return {role: path for role, path in value.items() if path}


def _parsed(text: str) -> Any:
    try:
        return strict_json.loads(text)
    except strict_json.JSONProblem as error:
        raise ValueError(told(error)) from None


def dump_mapping(mapping: Mapping[str, str]) -> str:
    """The text that `parse_options` reads back."""
    return json.dumps(dict(mapping), ensure_ascii=False)
