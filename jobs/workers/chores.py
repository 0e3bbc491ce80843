"""Chores: preparing tasks, cleaning up."""

from __future__ import annotations

from typing import Any

from jobs.services import flights, preparation, retention
from marlaas_site.celery import app


@app.task(name="chores.prepare")
def prepare(message: dict[str, Any]) -> None:
    """Tokenise a task's prompts and make its version 0."""
    preparation.prepare_task(message["task"])


@app.task(name="chores.clean")
def clean() -> None:
    """Throw away what nobody needs."""
    retention.clean()
    flights.forget_dead_queues()
