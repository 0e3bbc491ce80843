"""Many tasks on a stack of one's own: all begin at one moment, and the rows say how it went.

Emulated and real benchmarks use it. Tasks belong to one tenant or to several in turn, without
limits on how many run at once; the tenants are suspended while they are submitted, so that none has
a head start. What is found are the facts that `engine.simulation.performance.metrics` reads.
"""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.client import Client
from engine.simulation.performance.metrics import Span, StepTime, TaskTime
from jobs.stack.stack import Stack

POLL_S = 2.0
OVER = ("succeeded", "failed", "cancelled")

# What operators do under /ops/, each in one process: one starts in seconds.
_OWNERS = """
import json
from jobs.models import Tenant
from jobs.services.accounts import add_member, make_token
emails = [(f"bench-{{n}}", f"owner@bench-{{n}}.example") for n in range({})]
owners = [add_member(slug, email, "owner")[0] for slug, email in emails]
Tenant.objects.update(max_concurrent_tasks=0, is_suspended=True)
print(json.dumps([make_token(owner, "bench")[2] for owner in owners]))
"""
_RELEASE = "from jobs.models import Tenant; Tenant.objects.update(is_suspended=False)"


@dataclass(frozen=True)
class Submission:
    """A task to submit."""

    name: str
    rows: Sequence[Mapping[str, Any]]
    config: Mapping[str, Any]
    graders: Sequence[Mapping[str, Any]]


@dataclass(frozen=True)
class Record:
    """What the rows say once every task is over. Times are s since the first was admitted."""

    steps: list[StepTime]
    tasks: list[TaskTime]
    spans: list[Span]
    failed: dict[str, str]  # reasons by task

    @property
    def end_s(self) -> float:
        return max(task.ended_at for task in self.tasks)


class CampaignFailed(Exception):
    """Tasks failed, or did not end in time; their figures would say nothing."""


class Campaign:
    """The tasks of one run of a stack."""

    def __init__(self, stack: Stack, base_model: str, num_tenants: int = 1) -> None:
        self._stack, self._base_model = stack, base_model
        tokens = json.loads(stack.manage("shell", "-v0", "-c", _OWNERS.format(num_tenants)))
        self._clients = [Client(stack.url, token) for token in tokens]

    def submit(self, tasks: Sequence[Submission]) -> None:
        for number, task in enumerate(tasks):
            client = self._clients[number % len(self._clients)]
            data = "".join(json.dumps(row) + "\n" for row in task.rows).encode()
            dataset = client.upload("datasets", {"name": task.name}, ("rows.jsonl", data))
            body = {
                "name": task.name,
                "base_model": self._base_model,
                "dataset": dataset["id"],
                "graders": list(task.graders),
                "config": dict(task.config),
            }
            client.post("tasks", body)

    def begin(self) -> None:
        """Everybody at once."""
        self._stack.manage("shell", "-v0", "-c", _RELEASE)

    def follow(self, timeout_s: float, every: int) -> Record:
        """Wait until all tasks are over, with a line of progress each `every` steps.

        Raises: CampaignFailed.
        """
        rows = Rows(self._stack.layout.var / "db.sqlite3")
        deadline, told = time.monotonic() + timeout_s, 0
        while time.monotonic() < deadline:
            if (done := rows.num_committed()) >= told + every:
                told = done
                print(f"  {time.strftime('%H:%M:%S')}  {done} steps committed", flush=True)
            if rows.are_over():
                record = rows.record()
                if record.failed:
                    raise CampaignFailed(str(record.failed))
                return record
            time.sleep(POLL_S)
        raise CampaignFailed(f"{rows.num_committed()} steps committed in {timeout_s:.0f} s")


class Rows:
    """The stack's database, read beside it."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def _all(self, sql: str) -> list[tuple[Any, ...]]:
        with closing(sqlite3.connect(f"{self._path.as_uri()}?mode=ro", uri=True)) as connection:
            return connection.execute(sql).fetchall()

    def are_over(self) -> bool:
        return all(state in OVER for (state,) in self._all("SELECT state FROM jobs_task"))

    def num_committed(self) -> int:
        return int(self._all("SELECT count(*) FROM jobs_step WHERE state = 'committed'")[0][0])

    def num_generated_again(self) -> int:
        """Attempts at groups beyond the first."""
        return int(self._all("SELECT sum(max(0, attempt - 1)) FROM jobs_group")[0][0] or 0)

    def record(self) -> Record:
        start = float(self._all(f"SELECT min({_epoch('started_at')}) FROM jobs_task")[0][0])
        return Record(self._steps(start), self._tasks(start), self._spans(start), self._failed())

    def _steps(self, start: float) -> list[StepTime]:
        moments = ("opened_at", "ready_at", "training_started_at", "ended_at")
        found = self._all(
            f"SELECT t.name, s.number, {', '.join(_epoch(f's.{name}') for name in moments)},"
            f" (SELECT min({_epoch('g.dispatched_at')}) FROM jobs_group g WHERE g.step_id = s.id),"
            " (SELECT sum(g.num_tokens) FROM jobs_group g WHERE g.step_id = s.id),"
            " coalesce(s.policy_version, s.number)"
            " FROM jobs_step s JOIN jobs_task t ON t.id = s.task_id WHERE s.state = 'committed'"
            " ORDER BY s.ended_at"
        )
        return [
            StepTime(
                task=name,
                number=number,
                opened_at=opened - start,
                begun_at=begun - start,
                ready_at=ready - start,
                trained_at=trained - start,
                committed_at=committed - start,
                tokens=tokens,
                version=version,
            )
            for name, number, opened, ready, trained, committed, begun, tokens, version in found
        ]

    def _tasks(self, start: float) -> list[TaskTime]:
        """A task's kind is what follows the first - of its name."""
        found = self._all(
            f"SELECT t.name, o.slug, {_epoch('t.ended_at')}"
            " FROM jobs_task t JOIN jobs_tenant o ON o.id = t.tenant_id ORDER BY t.name"
        )
        return [
            TaskTime(name, tenant, name.partition("-")[2], 0.0, ended - start)
            for name, tenant, ended in found
        ]

    def _spans(self, start: float) -> list[Span]:
        found = self._all(
            "SELECT t.name, s.stage, s.worker,"
            f" {_epoch('s.started_at')}, {_epoch('s.ended_at')}, s.tokens"
            " FROM jobs_span s JOIN jobs_task t ON t.id = s.task_id"
            " WHERE s.ended_at IS NOT NULL ORDER BY s.started_at"
        )
        return [
            Span(name, stage, worker, began - start, ended - start, tokens)
            for name, stage, worker, began, ended, tokens in found
        ]

    def _failed(self) -> dict[str, str]:
        return dict(self._all("SELECT name, reason FROM jobs_task WHERE state != 'succeeded'"))


def _epoch(column: str) -> str:
    """SQL for a moment in epoch s, exact to a ms."""
    return f"(julianday({column}) - 2440587.5) * 86400.0"
