"""Chores: preparing tasks, importing large datasets, cleaning up."""

from __future__ import annotations

from typing import Any

from jobs.services import dataset_imports, flights, preflight, preparation, retention
from marlaas_site.celery import app


@app.task(name="chores.prepare")
def prepare(message: dict[str, Any]) -> None:
    """Tokenise a task's prompts and make its version 0."""
    preparation.prepare_task(message["task"])


@app.task(name="chores.import_dataset")
def import_dataset(message: dict[str, Any]) -> None:
    """Read an upload that is too large for a request."""
    dataset_imports.run_import(message["import"])


@app.task(name="chores.clean")
def clean() -> None:
    """Throw away what nobody needs."""
    retention.clean()
    dataset_imports.tend_imports()
    preflight.tend_preflights()
    flights.forget_dead_queues()
