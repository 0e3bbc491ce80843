"""The form of a new task, generated from what the engine says of its settings.

Nothing is checked here: `submit_task` does.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

from django.http import QueryDict

from engine.config import TaskConfig
from engine.environments import environment_catalogue, tool_catalogue
from engine.errors import SpecError
from engine.parameters import describe
from engine.rewards import catalogue, dump_graders, parse_graders
from jobs.models import Dataset, Task, Tenant
from jobs.services.graders import saved_entry
from jobs.services.priorities import PRIORITY

from .inputs import Fields, Input, Row

NUM_GRADERS = NUM_TOOLS = 3
ENVIRONMENT = "config.environment"
TOOLS = f"{ENVIRONMENT}.tools"
NAME = ("name", "shown in figures; empty: the type", "")
WEIGHT = ("weight", "the total is the weighted sum", "1")
TOOL_NAME = ("name", "that the policy writes; empty: the type", "")
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
    ("Grading", ("max_ungraded",)),
    (
        "Optimiser",
        ("lr_scheduler_type", "warmup_steps", "weight_decay", "max_grad_norm", "seed"),
    ),
    (
        "Loss",
        ("loss_type", "epsilon", "epsilon_high", "beta", "scale_rewards"),
    ),
    ("Adapter and versions", ("lora_alpha", "target_modules", "checkpoint_interval", "keep_last")),
)


class TaskForm(Fields):
    """Values and errors of the form; from a task to clone, from what was sent, or defaults."""

    @classmethod
    def sent(cls, data: QueryDict) -> TaskForm:
        values: dict[str, Any] = {key: data[key] for key in data}
        values["config.target_modules"] = data.getlist("config.target_modules")
        return cls(values)

    @classmethod
    def cloned(cls, task: Task) -> TaskForm:
        form = cls(
            {
                "name": f"{task.name} (copy)"[:100],
                "base_model": task.base_model.slug,
                "dataset": str(task.dataset_id),
                "priority": task.priority,
            }
        )
        config = dict(task.hyperparameters.to_json())
        environment = config.pop("environment")
        form.flatten("config", config)
        for place, tool in enumerate(environment.pop("tools", ())):
            form.flatten(f"{TOOLS}.{place}", tool)
        form.flatten(ENVIRONMENT, environment)
        for place, grader in enumerate(_as_of_today(task.graders)[:NUM_GRADERS]):
            form.flatten(f"graders.{place}", grader)
        return form

    def offering(self, tenant: Tenant) -> Self:
        """The form with what the tenant has: corpora to search, and saved reward functions."""
        corpora = Dataset.objects.filter(tenant=tenant, kind=Dataset.Kind.CORPUS)
        self.corpora = [(str(one.pk), f"{one} – {one.num_rows:,} documents") for one in corpora]
        saved = saved_entry(tenant)
        self.saved = [saved] if saved else []
        return self

    # What submit_task takes ----------------------------------------------------------------

    def config(self) -> dict[str, Any]:
        """Settings that are filled in; an empty one takes its default."""
        names = [spec["name"] for spec in describe(TaskConfig) if spec["name"] != "environment"]
        found = {name: self.values.get(f"config.{name}") for name in names}
        found = {name: value for name, value in found.items() if value not in (None, "", [])}
        if self.values.get(f"{ENVIRONMENT}.type"):
            found["environment"] = self._environment()
        return found

    def _environment(self) -> dict[str, Any]:
        found = self.mapping(ENVIRONMENT, environment_catalogue())
        if found["type"] == "tools":
            places = self._places(TOOLS, NUM_TOOLS)
            tools = tool_catalogue()
            found["tools"] = [self.mapping(f"{TOOLS}.{n}", tools, ["name"]) for n in places]
        return found

    def graders(self) -> list[dict[str, Any]]:
        """Reward functions whose type is chosen, with the parameters that this type has."""
        places = self._places("graders", NUM_GRADERS)
        known = self._known_graders()
        return [self.mapping(f"graders.{n}", known, ["name", "weight"]) for n in places]

    def _known_graders(self) -> list[Mapping[str, Any]]:
        return [*catalogue(), *self.saved]

    def _places(self, path: str, count: int) -> list[int]:
        """Rows whose type is chosen."""
        return [n for n in range(count) if self.values.get(f"{path}.{n}.type")]

    def take_errors(self, fields: dict[str, list[str]]) -> None:
        """Errors by path; those of the n-th thing sent go to the row that it came from."""
        for path, texts in fields.items():
            for start, count in (("graders", NUM_GRADERS), (TOOLS, NUM_TOOLS)):
                path, texts = self._at_row(start, count, path, texts)
            self.errors.setdefault(path, []).extend(texts)

    def _at_row(self, start: str, count: int, path: str, texts: list[str]) -> tuple[str, list[str]]:
        place, _, rest = path.removeprefix(f"{start}.").partition(".")
        places = self._places(start, count)
        if not path.startswith(f"{start}.") or not place.isdigit() or int(place) >= len(places):
            return path, texts
        name, _, inside = rest.partition(".")
        if inside:  # of a JSON parameter, which has one input
            texts = [f"{inside}: {text}" for text in texts]
        row = f"{start}.{places[int(place)]}"
        return f"{row}.{name}" if name else row, texts

    # What the template draws ---------------------------------------------------------------

    @property
    def simple(self) -> list[Input]:
        return [self._setting(name) for name in SIMPLE]

    @property
    def expert(self) -> list[tuple[str, list[Input]]]:
        scheduling = [self._setting("max_staleness"), self.input("priority", PRIORITY)]
        return [
            *((title, [self._setting(name) for name in names]) for title, names in GROUPS),
            ("Scheduling", scheduling),
        ]

    @property
    def has_expert_errors(self) -> bool:
        return any(entry.errors for _, entries in self.expert for entry in entries)

    def _setting(self, name: str) -> Input:
        spec = next(spec for spec in describe(TaskConfig) if spec["name"] == name)
        return self.input(f"config.{name}", spec)

    @property
    def grader_rows(self) -> list[Row]:
        first = "" if self.values else "numeric"
        return [
            self.row(
                f"graders.{place}",
                f"Reward function {place + 1}",
                self._known_graders(),
                default="" if place else first,
                common=[NAME, WEIGHT],
            )
            for place in range(NUM_GRADERS)
        ]

    @property
    def environment_row(self) -> Row:
        return self.row(
            ENVIRONMENT,
            "Environment",
            environment_catalogue(),
            default="single_turn",
            is_optional=False,
        )

    @property
    def max_turns(self) -> Input:
        return self._setting("max_turns")

    @property
    def tool_rows(self) -> list[Row]:
        return [
            self.row(f"{TOOLS}.{place}", f"Tool {place + 1}", tool_catalogue(), common=[TOOL_NAME])
            for place in range(NUM_TOOLS)
        ]

    @property
    def tool_errors(self) -> list[str]:
        return self.errors.get(TOOLS, [])


def _as_of_today(graders: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Stored reward functions under today's names; as they are, where they are not valid now."""
    try:
        return dump_graders(parse_graders(graders))
    except SpecError:
        return graders
