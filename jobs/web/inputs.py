"""Inputs of forms that are generated from what the engine says of its settings.

An input's name is the path that its errors come back under, so every message finds its field.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

Entries = Sequence[Mapping[str, Any]]  # of a catalogue: type, help, parameters


@dataclass
class Input:
    """One labelled input. kind: number, text, lines, select, check or several."""

    name: str
    label: str
    help: str
    kind: str
    value: Any
    choices: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    types: str = ""  # of things that have this parameter
    options: list[tuple[str, str]] = field(default_factory=list)  # (value, label), for a select

    @property
    def id(self) -> str:
        return f"id_{self.name.replace('.', '_')}"

    @property
    def described_by(self) -> str:
        return f"{self.id}_help" + (f" {self.id}_error" if self.errors else "")


@dataclass
class Row:
    """A thing whose type is chosen, with the parameters of every type."""

    path: str
    label: str
    type: str
    types: list[tuple[str, str]]  # (type, first line of its help)
    errors: list[str]
    common: list[Input]
    parameters: list[Input]
    is_optional: bool = True

    @property
    def id(self) -> str:
        return f"id_{self.path.replace('.', '_')}_type"

    @property
    def help(self) -> str:
        return dict(self.types).get(self.type, "")


class Fields:
    """What was typed and what is wrong with it, by path."""

    def __init__(self, values: dict[str, Any], errors: dict[str, list[str]] | None = None) -> None:
        self.values = values
        self.errors = errors or {}
        self.corpora: list[tuple[str, str]] = []  # (id, label) that a search may use
        self.saved: list[Mapping[str, Any]] = []  # of the catalogue's shape: saved reward functions

    def input(self, path: str, spec: Mapping[str, Any]) -> Input:
        """The input of a parameter, as `engine.parameters.describe` describes it."""
        kind = {"array": "several", "boolean": "check", "string": "text"}.get(
            spec["type"], "number"
        )
        if kind == "text" and "choices" in spec:
            kind = "select"
        if "json" in spec or spec.get("is_multiline"):
            kind = "lines"
        value = self.values.get(path, spec["default"])
        if "json" in spec and not isinstance(value, str):
            value = json.dumps(value, indent=2, ensure_ascii=False) if value else ""
        if kind == "check":
            value = str(value).lower() == "true"
        made = Input(
            path,
            spec["name"],
            _help(spec),
            kind,
            f"{value:g}" if isinstance(value, float) else value,
            spec.get("choices", []),
            self.errors.get(path, []),
        )
        if spec["name"] == "corpus":
            made.kind, made.options = "select", [("", "none"), *self.corpora]
        return made

    def row(
        self,
        path: str,
        label: str,
        entries: Entries,
        *,
        default: str = "",
        common: Iterable[tuple[str, str, str]] = (),
        is_optional: bool = True,
    ) -> Row:
        """A thing at `path`. common: (name, help, default) of what every type has."""
        chosen = self.values.get(f"{path}.type", default)
        return Row(
            path,
            label,
            chosen,
            [(entry["type"], entry["help"].partition("\n")[0]) for entry in entries],
            self.errors.get(f"{path}.type", []) + self.errors.get(path, []),
            [self._common(f"{path}.{name}", name, help, value) for name, help, value in common],
            self._parameters(path, chosen, entries),
            is_optional,
        )

    def _common(self, path: str, name: str, help: str, default: str) -> Input:
        value = self.values.get(path, default)
        return Input(path, name, help, "text", value, errors=self.errors.get(path, []))

    def _parameters(self, path: str, chosen: str, entries: Entries) -> list[Input]:
        """Every parameter of every type once; the page hides those of other types."""
        found: dict[str, Input] = {}
        for entry in sorted(entries, key=lambda entry: entry["type"] != chosen):
            for spec in entry["parameters"]:
                name = spec["name"]
                if name in found:
                    found[name].types += f" {entry['type']}"
                    continue
                found[name] = self.input(f"{path}.{name}", spec)
                if f"{path}.type" in self.values and spec["type"] == "boolean":
                    found[name].value = str(self.values.get(f"{path}.{name}")).lower() == "true"
                found[name].types = entry["type"]
        return list(found.values())

    def mapping(self, path: str, entries: Entries, common: Sequence[str] = ()) -> dict[str, Any]:
        """The thing at `path` as what was typed says, with the parameters that its type has."""

        def value(key: str) -> Any:
            return self.values.get(f"{path}.{key}", "")

        kind = value("type")
        found = {"type": kind} | {key: value(key) for key in common if value(key) != ""}
        known = next((entry for entry in entries if entry["type"] == kind), None)
        for spec in known["parameters"] if known else []:
            if spec["type"] == "boolean":
                found[spec["name"]] = str(value(spec["name"])).lower() == "true"
            elif value(spec["name"]) != "" or _may_be_empty(spec):
                found[spec["name"]] = value(spec["name"])
        return found

    def flatten(self, path: str, mapping: Mapping[str, Any]) -> None:
        """Take a mapping's values as if they had been typed."""
        self.values |= {f"{path}.{key}": value for key, value in mapping.items()}

    @property
    def summary(self) -> list[tuple[str, str, str]]:
        """(id of the field, its name, message) of everything that is wrong."""
        return [
            (f"id_{path.replace('.', '_')}", path.removeprefix("config."), text)
            for path, texts in self.errors.items()
            for text in texts
        ]


def _may_be_empty(spec: Mapping[str, Any]) -> bool:
    """Whether nothing is a value of its own, not a wish for the default."""
    return spec["type"] == "string" and "choices" not in spec and not spec.get("default")


def _help(spec: Mapping[str, Any]) -> str:
    """The setting's help with its range."""
    limits = []
    if "above" in spec:
        limits.append(f"above {spec['above']:,.12g}")
    if "low" in spec and spec["type"] in ("integer", "number"):
        limits.append(f"from {spec['low']:,.12g}")
    if "high" in spec:
        limits.append(f"to {spec['high']:,.12g}")
    return spec["help"] + (f"; {' '.join(limits)}" if limits else "")
