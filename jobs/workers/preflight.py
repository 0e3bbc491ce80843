"""Checks of tasks before they are submitted: the data, then samples of the base model, graded.

Runs in the environment worker, beside everybody's episodes: a thread of its own waits, the graders
run in the loop. A few at a time; what finds no room stays queued in the database, and the next one
that ends takes it.
"""

from __future__ import annotations

import asyncio
import logging
import random
import tempfile
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from celery import signals

from engine.config import TaskConfig
from engine.environments import Context, ToolUse
from engine.errors import ModelError
from engine.models.chat import ChatTokenizer
from engine.models.template_check import check_template
from engine.preflight import (
    Report,
    Timings,
    better_columns,
    diagnose,
    estimate_costs,
    summarise,
    timed,
    zero_variance,
)
from engine.preflight.outcomes import groups_of
from engine.rewards import Grader, Services, parse_graders
from jobs import artifacts
from jobs.models import Preflight
from jobs.services import preflight as checks
from jobs.services import samples
from jobs.services.failures import told
from jobs.services.preparation import chat_tokenizer, write_untrained_adapter
from jobs.services.secrets import named_secrets, secrets_of
from jobs.workers import environment
from jobs.workers.preflight_data import Look, look
from jobs.workers.preflight_episodes import Episodes
from jobs.workers.preflight_examples import examples_of
from jobs.workers.preflight_speeds import incarnations, speeds, window
from marlaas_site.celery import app

MAX_AT_ONCE = 4  # in this process, which has 32 threads
REFERENCES_S = 15.0  # for references that a grader needs services for
COLUMNS_S = 5.0

log = logging.getLogger(__name__)
_room = threading.BoundedSemaphore(MAX_AT_ONCE)
_leaving = threading.Event()


@signals.worker_shutting_down.connect
def _stop(**_: Any) -> None:
    """Celery waits for what runs: checks give themselves back. Only sets an event."""
    _leaving.set()


@app.task(name="chores.check_task")
def check_task(message: dict[str, Any]) -> None:
    """Run a check, and then those that found no room meanwhile."""
    if not _room.acquire(blocking=False):
        return
    try:
        pk: str | None = message["preflight"]
        while pk:
            if row := checks.claim(pk):
                run(row)
            pk = None if _leaving.is_set() else checks.next_waiting()
    finally:
        _room.release()


def run(row: Preflight) -> None:
    """Run a check that is claimed, to its end. Never raises but for a database that is away."""
    try:
        report, num_tokens = _Check(row).report()
    except checks.Unwanted:
        checks.clean_up(row.pk)
    except checks.Leaving:
        checks.give_back(row)
    except Exception as error:  # whatever it is, the check must not run for ever
        log.exception("check %s failed", row.pk)
        checks.fail(row, told(error))
    else:
        checks.finish(row, report, num_tokens)


class _Check:
    """One run, from the first row to the report."""

    def __init__(self, row: Preflight) -> None:
        self.row = row
        self.config: TaskConfig = row.hyperparameters
        self.graders: tuple[Grader, ...] = parse_graders(row.graders)
        self.chat: ChatTokenizer = chat_tokenizer(row.base_model.path)
        self.progress = checks.Progress(row, _leaving.is_set)
        self.services = self._services()
        self.timings = Timings()

    def _services(self) -> Services:
        names = named_secrets(self.row.graders, self.row.config)
        found = environment.host().services_of(str(self.row.tenant_id))
        return replace(found, secrets=secrets_of(self.row.tenant_id, names) if names else {})

    def report(self) -> tuple[dict[str, Any], int]:
        """(report, tokens used). Raises: whatever stands against it."""
        found = look(self.row.dataset, self.config, self.graders, self.chat, self.progress)
        self._ask_services(found)
        report = Report(
            config=self.config,
            lengths=found.lengths,
            references=tuple(one.references() for one in found.references),
            **self._template(),
        )
        if not found.prompts:
            remarks = (*found.remarks, "Nothing was sampled: no prompt can be used.")
            report = replace(report, remarks=remarks)
            return report.to_json(diagnose(report)), 0
        episodes = self._episodes()
        episodes.run(found.prompts)
        report = self._with_samples(report, found, episodes)
        return report.to_json(diagnose(report)), episodes.num_tokens

    def _ask_services(self, found: Look) -> None:
        """References of the chosen rows, for graders that need services."""
        waiting = [one for one in found.references if not one.is_pure]

        async def ask() -> None:
            for one in waiting:
                for prompt in found.prompts:
                    await one.add_waiting(prompt.number, prompt.row, self.services)

        async def ask_in_time() -> None:
            try:
                await asyncio.wait_for(ask(), REFERENCES_S)
            except TimeoutError:
                found.remarks.append("Not all reference answers were checked: the time was up.")

        if waiting:
            self.progress.tell("checking reference answers", 0.3)
            environment.host().run(ask_in_time())

    def _template(self) -> dict[str, Any]:
        """What of the chat template matters to episodes of several turns."""
        env = self.config.environment
        if not env.has_turns:
            return {}
        is_auto = isinstance(env, ToolUse) and env.format == "auto"
        tool_format = self.chat.tool_format if is_auto else getattr(env, "format", "")
        try:
            found = check_template(self.chat)
        except ModelError as error:
            return {"tool_format": tool_format, "template_problems": (told(error),)}
        return {
            "tool_format": tool_format,
            "template_problems": found.problems,
            "template_notes": found.notes,
        }

    def _episodes(self) -> Episodes:
        digest = self._put_adapter()
        samples.keep_open(str(self.row.pk))
        context = Context(
            chat=self.chat,
            graders=timed(self.graders, self.timings),
            services=self.services,
            max_turns=self.config.max_turns,
        )
        source = samples.Source(
            preflight=str(self.row.pk),
            base_model=self.row.base_model.slug,
            digest=digest,
            adapter=self._adapter_key,
            temperature=self.config.temperature,
        )
        return Episodes(
            source=source,
            config=self.config,
            context=context,
            graders=self.graders,
            begin=environment.host().begin,
            window=window(self.row.base_model.slug),
            tell=self._tell_sampled,
            incarnations=lambda: incarnations(self.row.base_model.slug),
        )

    def _tell_sampled(self, num_done: int, num_all: int) -> None:
        share = 0.35 + 0.6 * num_done / max(1, num_all)
        self.progress.tell(f"{num_done:,} of at most {num_all:,} samples graded", share)

    @property
    def _adapter_key(self) -> str:
        return f"{checks.files_key(self.row.pk)}/adapter"

    def _put_adapter(self) -> str:
        """Store the task's untrained adapter, which changes nothing; returns its digest."""
        with tempfile.TemporaryDirectory() as directory:
            digest = write_untrained_adapter(directory, self.config, self.row.base_model)
            artifacts.put_directory(self._adapter_key, Path(directory))
        return digest

    def _with_samples(self, report: Report, found: Look, episodes: Episodes) -> Report:
        """The report, completed by what was sampled."""
        outcomes, remarks = episodes.outcomes, list(found.remarks)
        num_tried = len({outcome.prompt for outcome in outcomes})
        if num_tried < len(found.prompts):
            remarks.append(
                f"{num_tried} of {len(found.prompts)} chosen prompts were tried: the time was up."
            )
        ends_at = time.monotonic() + COLUMNS_S
        variance = zero_variance(groups_of(outcomes), self.config.group_size)
        lengths = found.lengths
        share_usable = lengths.num_usable / max(1, lengths.num_looked_at)
        return replace(
            report,
            samples=summarise(
                outcomes,
                self.graders,
                max_new_tokens=episodes.max_new_tokens,
                is_shortened=episodes.max_new_tokens < self.config.max_completion_length,
                latencies_s=self.timings.by_grader,
            ),
            zero_variance=variance,
            other_columns=better_columns(
                self.graders,
                episodes.completions,
                self.row.dataset.columns,
                lambda: time.monotonic() > ends_at,
            ),
            costs=estimate_costs(
                outcomes,
                self.config,
                speeds(self.row.base_model, outcomes, episodes.generated_s),
                mean_prompt=found.mean_length,
                num_prompts=round(share_usable * lengths.num_rows),
                tokens_per_day=self.row.tenant.tokens_per_day,
                tokens_today=checks.tokens_today(self.row.tenant),
                least_trained=1.0 - variance.high if variance and self.config.beta == 0 else 1.0,
            ),
            examples=examples_of(
                outcomes, found.prompts, self.graders, random.Random(self.config.seed)
            ),
            remarks=tuple(remarks),
        )
