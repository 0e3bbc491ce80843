"""A request for a task, checked as a whole: every wrong field is told at once."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from engine.config import TaskConfig, parse_config
from engine.environments import dump_environment
from engine.errors import GraderError, ModelError, SpecError
from engine.models.template_check import check_template
from engine.parameters import shown, text
from engine.rewards import Grader, dump_graders, is_pure, parse_graders
from jobs.models import BaseModel, Dataset, Tenant
from jobs.services.addresses import address_problems
from jobs.services.base_models import find_base_model
from jobs.services.corpora import find_corpus
from jobs.services.datasets import preview
from jobs.services.graders import Origins, resolve_graders
from jobs.services.mcp_servers import with_listed_tools
from jobs.services.priorities import checked_priority
from jobs.services.python_checks import source_problems
from jobs.services.secrets import missing_secrets, named_secrets
from jobs.services.tokenizers import chat_tokenizer

MAX_NAME_CHARACTERS = 100
CHECKED_ROWS = 100  # of the dataset's start: can the reward functions use their columns?


class Submission:
    """A person's request, checked. Raises: SpecError with everything that is wrong; QuotaError and
    ErrandError where MCP servers that it names could not be asked for their tools."""

    name: str
    config: TaskConfig
    graders: tuple[Grader, ...]
    origins: Origins  # of reward functions that were saved before

    base_model: BaseModel
    dataset: Dataset

    priority: int

    def __init__(
        self,
        tenant: Tenant,
        name: Any,
        base_model: Any,
        dataset: Any,
        config: Any,
        graders: Any,
        priority: Any = 0,
    ) -> None:
        self.errors: dict[str, list[str]] = {}
        self._read_name(name)
        self._read_priority(priority)
        has_model = self._find_model(base_model)
        has_dataset = self._find_dataset(dataset, tenant)
        has_config = self._read_config(config)
        if has_config:
            self._check_rank(tenant)
            self._check_step(tenant)
            self._check_environment(tenant)
            if has_model:
                self._check_length()
                self._check_template()
        has_graders = self._read_graders(graders, tenant)
        if has_graders and has_dataset:
            self._check_columns()
        self._check_addresses(has_config, has_graders)
        self._check_secrets(tenant, has_config, has_graders)
        if has_config and not self.errors:  # nobody waits for a server to be told of a typo
            self._list_tools(tenant)
            self._check_python(tenant)
        if self.errors:
            raise SpecError(self.errors)

    def _add(self, field: str, message: str) -> None:
        self.errors.setdefault(field, []).append(message)

    def _read_name(self, name: Any) -> None:
        try:
            self.name = text(name, MAX_NAME_CHARACTERS).strip()
        except ValueError as error:
            self._add("name", str(error))
        else:
            if not self.name:
                self._add("name", "Must not be empty.")

    def _read_priority(self, value: Any) -> None:
        try:
            self.priority = checked_priority(value)
        except SpecError as error:
            self.errors.update(error.fields)

    def _find_model(self, value: Any) -> bool:
        if isinstance(value, BaseModel) and not value.is_enabled:
            self._add("base_model", f"{value.name} takes no new tasks.")
        elif isinstance(value, BaseModel):
            self.base_model = value
        else:
            try:
                self.base_model = find_base_model(value)
            except SpecError as error:
                self.errors.update(error.fields)
        return "base_model" not in self.errors

    def _find_dataset(self, value: Any, tenant: Tenant) -> bool:
        try:
            key = value.pk if isinstance(value, Dataset) else uuid.UUID(value)
            self.dataset = Dataset.objects.of_tenant(tenant).get(pk=key)
        except (Dataset.DoesNotExist, ValueError, AttributeError, TypeError):
            self._add("dataset", f"{tenant.name} has no such dataset; give the id of one.")
        else:
            if self.dataset.kind != Dataset.Kind.PROMPTS:
                self._add(
                    "dataset",
                    f"{self.dataset} holds documents to search, no prompts; choose another.",
                )
        return "dataset" not in self.errors

    def _read_config(self, config: Any) -> bool:
        try:
            self.config = parse_config(config)
        except SpecError as error:
            for name, messages in error.fields.items():
                self.errors["config" if name == "config" else f"config.{name[:100]}"] = messages
            return False
        return True

    def _read_graders(self, graders: Any, tenant: Tenant) -> bool:
        try:
            resolved, self.origins = resolve_graders(tenant, graders)
            self.graders = parse_graders(resolved)
        except SpecError as error:
            self.errors.update(error.fields)
            return False
        return True

    def _check_rank(self, tenant: Tenant) -> None:
        if self.config.lora_rank > tenant.max_lora_rank:
            self._add(
                "config.lora_rank",
                f"Must be at most {tenant.max_lora_rank}, the quota of {tenant.name}.",
            )

    def _check_step(self, tenant: Tenant) -> None:
        config, limit = self.config, tenant.max_step_tokens
        length = config.max_prompt_length + config.max_completion_length
        if limit and config.sequences_per_step * length > limit:
            self._add(
                "config.batch_size",
                f"{config.batch_size} prompts of {config.group_size} trajectories of up to"
                f" {length:,} tokens make {config.sequences_per_step * length:,} tokens a step; the"
                f" quota of {tenant.name} is {limit:,}. Lower batch_size, group_size,"
                " max_prompt_length or max_completion_length.",
            )

    def _check_length(self) -> None:
        total = self.config.max_prompt_length + self.config.max_completion_length
        if total > self.base_model.max_model_length:
            self._add(
                "config.max_completion_length",
                f"With max_prompt_length it makes {total:,} tokens; {self.base_model.name} takes"
                f" {self.base_model.max_model_length:,} together.",
            )

    def _check_environment(self, tenant: Tenant) -> None:
        """Refuse what the environment names and the tenant does not have."""
        for place, tool in enumerate(getattr(self.config.environment, "tools", ())):
            corpus = getattr(tool, "corpus", "")
            if corpus and find_corpus(str(tenant.pk), corpus) is None:
                self._add(
                    f"config.environment.tools.{place}.corpus",
                    f"{tenant.name} has no corpus {shown(corpus)}; upload documents with title and"
                    " text as a dataset of the kind corpus, and give its id.",
                )

    def _check_addresses(self, has_config: bool, has_graders: bool) -> None:
        """Refuse URLs of tools and reward functions that could not be called."""
        problems = address_problems(
            self.config.environment if has_config else None, self.graders if has_graders else ()
        )
        for path, message in problems.items():
            self._add(path, message)

    def _list_tools(self, tenant: Tenant) -> None:
        """Put what MCP servers have now in the place of those that are named without tools."""
        try:
            environment = with_listed_tools(str(tenant.pk), self.config.environment)
        except SpecError as error:
            self.errors |= {f"config.{path}": texts for path, texts in error.fields.items()}
        else:
            self.config = replace(self.config, environment=environment)

    def _check_secrets(self, tenant: Tenant, has_config: bool, has_graders: bool) -> None:
        """Refuse what names a secret that the tenant does not have."""
        specs: dict[str, Any] = {}
        if has_graders:
            graders = dump_graders(self.graders)
            specs |= {f"graders.{place}.secret": spec for place, spec in enumerate(graders)}
        if has_config:
            tools = dump_environment(self.config.environment).get("tools", ())
            path = "config.environment.tools"
            specs |= {f"{path}.{place}.secret": spec for place, spec in enumerate(tools)}
        missing = missing_secrets(tenant, named_secrets(*specs.values()))
        for path, spec in specs.items():
            for name in sorted(named_secrets(spec) & missing):
                self._add(path, f"{tenant.name} has no secret {shown(name)}; save it first.")

    def _check_python(self, tenant: Tenant) -> None:
        for place, problem in source_problems(tenant, self.graders):
            self._add(f"graders.{place}.source", problem)

    def _check_template(self) -> None:
        """Refuse episodes of several turns where the model's chat template has no such thing."""
        if not self.config.environment.has_turns:
            return
        try:
            problems = check_template(chat_tokenizer(self.base_model.path)).problems
        except ModelError as error:
            problems = (str(error),)
        if problems:
            self._add(
                "config.environment",
                f"{self.base_model.name} cannot be used for several turns: {problems[0]} Choose"
                " single_turn, or another base model.",
            )

    def _check_columns(self) -> None:
        """Refuse reward functions whose column is absent, or of no use in every row looked at."""
        rows: list[dict[str, Any]] = []
        for place, grader in enumerate(self.graders):
            target = getattr(grader, "target", "")
            if not target:
                continue
            if target not in self.dataset.columns:
                columns = ", ".join(self.dataset.columns[:20])
                self._add(
                    f"graders.{place}.target",
                    f"The dataset has no column {shown(target)}; it has: {columns}.",
                )
                continue
            rows = rows or preview(self.dataset, CHECKED_ROWS)
            if problem := _useless(grader, rows):
                self._add(f"graders.{place}.target", f"No row looked at can be graded: {problem}.")


def _useless(grader: Grader, rows: list[dict[str, Any]]) -> str:
    """Why no row can be graded; empty if one can."""
    problem = ""
    if not is_pure(grader):  # what it needs is not in this process, but some know rows by sight
        found = [row_problem(row) for row in rows] if (row_problem := _sight(grader)) else []
        return found[0] if found and all(found) else ""
    for row in rows:
        try:
            grader.score("", row)
        except GraderError as error:
            problem = problem or str(error).partition(": ")[2]
        else:
            return ""
    return problem


def _sight(grader: Grader) -> Callable[[dict[str, Any]], str] | None:
    """A reward function's own check of a row, if it has one."""
    return getattr(grader, "row_problem", None)
