"""The form of a new task, generated from what the engine says of its settings.

Names of inputs are the paths that errors come back under (`config.learning_rate`,
`graders.0.pattern`), so every message finds its field. Nothing is checked here: `submit_task` does.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from django.http import QueryDict

from engine.config import TaskConfig
from engine.errors import SpecError
from engine.parameters import describe
from engine.rewards import catalogue, dump_graders, parse_graders
from jobs.models import Task

NUM_GRADERS = 3
SIMPLE = (
    "max_steps",
    "learning_rate",
    "batch_size",
    "group_size",
    "max_completion_length",
    "lora_rank",
)
GROUPS = (
    (
        "Lengths and sampling",
        ("max_prompt_length", "overlong_policy", "temperature", "top_p", "top_k"),
    ),
    ("Environment", ("environment", "max_turns")),
    (
        "Optimiser",
        ("lr_scheduler_type", "warmup_steps", "weight_decay", "max_grad_norm", "seed"),
    ),
    (
        "Loss",
        ("loss_type", "epsilon", "epsilon_high", "beta", "scale_rewards", "max_staleness"),
    ),
    ("Adapter and versions", ("lora_alpha", "target_modules", "checkpoint_interval", "keep_last")),
)


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
    types: str = ""  # reward functions that take this parameter

    @property
    def id(self) -> str:
        return f"id_{self.name.replace('.', '_')}"

    @property
    def described_by(self) -> str:
        return f"{self.id}_help" + (f" {self.id}_error" if self.errors else "")


class TaskForm:
    """Values and errors of the form; from a task to clone, from what was sent, or defaults."""

    def __init__(self, values: dict[str, Any], errors: dict[str, list[str]] | None = None) -> None:
        self.values = values
        self.errors = errors or {}

    @classmethod
    def sent(cls, data: QueryDict) -> TaskForm:
        values: dict[str, Any] = {key: data[key] for key in data}
        values["config.target_modules"] = data.getlist("config.target_modules")
        return cls(values)

    @classmethod
    def cloned(cls, task: Task) -> TaskForm:
        values: dict[str, Any] = {
            "name": f"{task.name} (copy)"[:100],
            "base_model": task.base_model.slug,
            "dataset": str(task.dataset_id),
        }
        values |= {f"config.{name}": value for name, value in task.config.items()}
        for place, grader in enumerate(_as_of_today(task.graders)[:NUM_GRADERS]):
            values |= {f"graders.{place}.{key}": value for key, value in grader.items()}
        return cls(values)

    # What submit_task takes ----------------------------------------------------------------

    def config(self) -> dict[str, Any]:
        """Settings that are filled in; an empty one takes its default."""
        names = [spec["name"] for spec in describe(TaskConfig)]
        found = {name: self.values.get(f"config.{name}") for name in names}
        return {name: value for name, value in found.items() if value not in (None, "", [])}

    def graders(self) -> list[dict[str, Any]]:
        """Reward functions whose type is chosen, with the parameters that this type has."""
        return [self._grader(place) for place in self._places()]

    def _places(self) -> list[int]:
        return [n for n in range(NUM_GRADERS) if self.values.get(f"graders.{n}.type")]

    def _grader(self, place: int) -> dict[str, Any]:
        def value(key: str) -> Any:
            return self.values.get(f"graders.{place}.{key}", "")

        kind = value("type")
        found = {"type": kind}
        found |= {key: value(key) for key in ("name", "weight") if value(key) != ""}
        known = next((entry for entry in catalogue() if entry["type"] == kind), None)
        for spec in known["parameters"] if known else []:
            if spec["type"] == "boolean":
                found[spec["name"]] = str(value(spec["name"])).lower() == "true"
            elif value(spec["name"]) != "" or _may_be_empty(spec):
                found[spec["name"]] = value(spec["name"])
        return found

    def take_errors(self, fields: dict[str, list[str]]) -> None:
        """Errors by path; those of the n-th reward function go to the row that it came from."""
        places = self._places()
        for path, texts in fields.items():
            parts = path.split(".")
            if parts[0] == "graders" and len(parts) > 1 and parts[1].isdigit():
                parts[1] = str(places[int(parts[1])])
                if inside := ".".join(parts[3:]):  # of a JSON parameter, which has one input
                    texts = [f"{inside}: {text}" for text in texts]
                    parts = parts[:3]
            self.errors.setdefault(".".join(parts), []).extend(texts)

    # What the template draws ---------------------------------------------------------------

    @property
    def simple(self) -> list[Input]:
        return [self._setting(name) for name in SIMPLE]

    @property
    def expert(self) -> list[tuple[str, list[Input]]]:
        return [(title, [self._setting(name) for name in names]) for title, names in GROUPS]

    @property
    def has_expert_errors(self) -> bool:
        return any(entry.errors for _, entries in self.expert for entry in entries)

    def _setting(self, name: str) -> Input:
        spec = next(spec for spec in describe(TaskConfig) if spec["name"] == name)
        return self._input(f"config.{name}", spec)

    def _input(self, path: str, spec: dict[str, Any], default: Any = None) -> Input:
        kind = {"array": "several", "boolean": "check", "string": "text"}.get(
            spec["type"], "number"
        )
        if kind == "text" and "choices" in spec:
            kind = "select"
        if "json" in spec or spec.get("is_multiline"):
            kind = "lines"
        value = self.values.get(path, spec["default"] if default is None else default)
        if "json" in spec and not isinstance(value, str):
            value = json.dumps(value, indent=2, ensure_ascii=False) if value else ""
        if isinstance(value, dict):
            kind, value = "text", value["type"] if len(value) == 1 else json.dumps(value)
        if kind == "check":
            value = str(value).lower() == "true"
        return Input(
            path,
            spec["name"],
            _help(spec),
            kind,
            f"{value:g}" if isinstance(value, float) else value,
            spec.get("choices", []),
            self.errors.get(path, []),
        )

    @property
    def grader_rows(self) -> list[dict[str, Any]]:
        return [self._grader_row(place) for place in range(NUM_GRADERS)]

    def _grader_row(self, place: int) -> dict[str, Any]:
        path = f"graders.{place}"
        chosen = self.values.get(f"{path}.type")
        if chosen is None:
            chosen = "numeric" if place == 0 and not self.values else ""
        entries = catalogue()
        return {
            "place": place,
            "number": place + 1,
            "type": chosen,
            "types": [(entry["type"], entry["help"].partition("\n")[0]) for entry in entries],
            "type_errors": self.errors.get(f"{path}.type", []) + self.errors.get(path, []),
            "common": [
                Input(
                    f"{path}.name", "name", "shown in figures; empty: the type", "text",
                    self.values.get(f"{path}.name", ""), errors=self.errors.get(f"{path}.name", []),
                ),
                Input(
                    f"{path}.weight", "weight", "the total is the weighted sum", "number",
                    self.values.get(f"{path}.weight", "1"),
                    errors=self.errors.get(f"{path}.weight", []),
                ),
            ],
            "parameters": self._parameters(path, chosen, entries),
        }  # fmt: skip

    def _parameters(self, path: str, chosen: str, entries: list[dict[str, Any]]) -> list[Input]:
        """Every parameter of every type once; the page hides those of other types."""
        found: dict[str, Input] = {}
        for entry in sorted(entries, key=lambda entry: entry["type"] != chosen):
            for spec in entry["parameters"]:
                name = spec["name"]
                if name in found:
                    found[name].types += f" {entry['type']}"
                    continue
                found[name] = self._input(f"{path}.{name}", spec)
                if f"{path}.type" in self.values and spec["type"] == "boolean":
                    found[name].value = str(self.values.get(f"{path}.{name}")).lower() == "true"
                found[name].types = entry["type"]
        return list(found.values())

    @property
    def summary(self) -> list[tuple[str, str, str]]:
        """(id of the field, its name, message) of everything that is wrong."""
        return [
            (f"id_{path.replace('.', '_')}", path.removeprefix("config."), text)
            for path, texts in self.errors.items()
            for text in texts
        ]


def _as_of_today(graders: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Stored reward functions under today's names; as they are, where they are not valid now."""
    try:
        return dump_graders(parse_graders(graders))
    except SpecError:
        return graders


def _may_be_empty(spec: dict[str, Any]) -> bool:
    """Whether nothing is a value of its own, not a wish for the default."""
    return spec["type"] == "string" and "choices" not in spec


def _help(spec: dict[str, Any]) -> str:
    """The setting's help with its range."""
    limits = []
    if "above" in spec:
        limits.append(f"above {spec['above']:,.12g}")
    if "low" in spec and spec["type"] in ("integer", "number"):
        limits.append(f"from {spec['low']:,.12g}")
    if "high" in spec:
        limits.append(f"to {spec['high']:,.12g}")
    return spec["help"] + (f"; {' '.join(limits)}" if limits else "")
