"""The editor of one saved reward function: its parameters, and samples to try it on.

Names of inputs are the paths that errors come back under, below `grader`; nothing is checked here.
"""

from __future__ import annotations

import json
from typing import Any

from django.http import QueryDict

from engine.rewards import catalogue
from jobs import strict_json
from jobs.models import Dataset, GraderVersion, Tenant

from .frame import whole_number
from .inputs import Fields, Input

NUM_SAMPLES = 5
PATH = "grader"

# What a python reward function may start from; each is a whole one that scores.
TEMPLATES = {
    "trl": (
        "TRL’s shape",
        '''def reward(completions, answer, **columns):
    """All completions of a group at once; columns of the dataset come as lists.

    Return one number for each completion, or None to leave it without a score.
    """
    return [
        1.0 if completion.strip() == right.strip() else 0.0
        for completion, right in zip(completions, answer)
    ]
''',
    ),
    "openai": (
        "OpenAI’s shape",
        '''def grade(sample, item):
    """One completion: sample["output_text"], and sample["output_json"] if it is JSON.

    item has the columns of its row. Return a number.
    """
    return 1.0 if sample["output_text"].strip() == item["answer"].strip() else 0.0
''',
    ),
}


def in_parts(text: str) -> list[tuple[str, bool]]:
    """A text of the catalogue in parts, and whether each is code: what stands in backticks."""
    parts = " ".join(text.split()).split("`")
    return [(part, bool(place % 2)) for place, part in enumerate(parts) if part]


def entry_of(kind: str) -> dict[str, Any] | None:
    """What the catalogue says of a type."""
    return next((entry for entry in catalogue() if entry["type"] == kind), None)


class GraderForm(Fields):
    """Values and errors: of a version, of a template, or as sent."""

    def __init__(self, kind: str, values: dict[str, Any] | None = None) -> None:
        super().__init__({**(values or {}), f"{PATH}.type": kind})
        self.type = kind
        self.entry = entry_of(kind) or {"parameters": [], "help": ""}

    @classmethod
    def new(cls, kind: str, template: str = "") -> GraderForm:
        form = cls(kind)
        if kind == "python":
            _, source = TEMPLATES.get(template, TEMPLATES["trl"])
            form.values[f"{PATH}.source"] = source
        return form

    @classmethod
    def of_version(cls, version: GraderVersion) -> GraderForm:
        form = cls(version.type, {"name": version.grader.name})
        form.flatten(PATH, version.spec)
        return form

    @classmethod
    def sent(cls, data: QueryDict) -> GraderForm:
        form = cls(data.get(f"{PATH}.type", ""), {key: data[key] for key in data})
        for spec in form.entry["parameters"]:  # a box that is not ticked is not sent
            if spec["type"] == "boolean":
                form.values.setdefault(f"{PATH}.{spec['name']}", "false")
        return form

    # What the services take ----------------------------------------------------------------

    def spec(self) -> dict[str, Any]:
        """The reward function as a task's list has it."""
        return self.mapping(PATH, [self.entry])

    def take_errors(self, fields: dict[str, list[str]]) -> None:
        """Errors by path, as `save_grader` or `try_graders` name them."""
        names = {spec["name"] for spec in self.entry["parameters"]}
        for path, texts in fields.items():
            own, _, below = path.removeprefix("graders.0.").partition(".")
            key = f"{PATH}.{own}" if own in names else own
            found = [f"{below}: {text}" if below else text for text in texts]
            self.errors.setdefault(key, []).extend(found)

    # What the template draws ---------------------------------------------------------------

    @property
    def help(self) -> list[list[tuple[str, bool]]]:
        """Paragraphs, in parts."""
        return [in_parts(paragraph) for paragraph in self.entry["help"].split("\n\n")]

    @property
    def parameters(self) -> list[Input]:
        """All but the source, which has an editor of its own."""
        return [
            self.input(f"{PATH}.{spec['name']}", spec)
            for spec in self.entry["parameters"]
            if not self._is_source(spec)
        ]

    @property
    def takes_secret(self) -> bool:
        return any(spec["name"] == "secret" for spec in self.entry["parameters"])

    @property
    def source(self) -> Input | None:
        spec = next((one for one in self.entry["parameters"] if self._is_source(one)), None)
        return self.input(f"{PATH}.source", spec) if spec else None

    def _is_source(self, spec: dict[str, Any]) -> bool:
        return self.type == "python" and spec["name"] == "source"


class SampleForm:
    """What the reward function is tried on: rows of a dataset, or one row as typed."""

    def __init__(self, tenant: Tenant, data: QueryDict) -> None:
        self.datasets = list(Dataset.objects.of_tenant(tenant).newest().prompts())
        chosen = data.get("dataset", "")
        self.dataset = next((one for one in self.datasets if str(one.pk) == chosen), None)
        self.start = min(whole_number(data.get("start", "0")), 10_000_000)
        self.row = data.get("row", '{"answer": "4"}')
        self.row_error = ""
        self.completions = [data.get(f"completions.{n}", "") for n in range(NUM_SAMPLES)]

    def take_rows(self, rows: list[dict[str, Any]]) -> None:
        """Show these rows, each with what was typed for it."""
        self.rows = [
            {
                "number": self.start + place + 1,
                "place": place,
                "prompt": _last_said(row),
                "columns": [
                    (key, _short(value)) for key, value in row.items() if key != "messages"
                ],
                "completion": completion,
            }
            for place, (row, completion) in enumerate(zip(rows, self.completions, strict=False))
        ]

    def typed_row(self) -> dict[str, Any] | None:
        """The row that was typed; None if it is no JSON object, and `row_error` says why."""
        try:
            row = strict_json.loads(self.row)
        except strict_json.JSONProblem as error:
            self.row_error = str(error)
            return None
        if not isinstance(row, dict):
            self.row_error = 'Must be an object such as {"answer": "4"}.'
            return None
        return row


def _last_said(row: dict[str, Any]) -> str:
    messages = row.get("messages") or []
    return _short(messages[-1].get("content")) if messages else ""


def _short(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 300 else f"{text[:300]}…"
