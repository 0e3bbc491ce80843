"""Preparing a task: once, however often it is asked for, and not for ever."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.db import OperationalError
from django.utils import timezone

from jobs.models import BaseModel, Task
from jobs.services import preparation
from jobs.services.lifecycle import end_task
from jobs.services.payloads import read_prompt
from tests.tiny import build_tiny_model

pytestmark = pytest.mark.django_db


@pytest.fixture
def task(make_task: Any, base_model: Any, tmp_path: Path, redis: Any) -> Task:
    """A running task that waits to be prepared, asked for a while ago."""
    path = build_tiny_model(tmp_path / "model")
    BaseModel.objects.filter(pk=base_model.pk).update(path=str(path))
    asked = timezone.now() - timedelta(minutes=1)
    return make_task(state=Task.State.RUNNING, prepare_sent_at=asked)


def test_prompts_are_stored_in_order_with_their_rows(task: Task) -> None:
    preparation.prepare_task(str(task.pk))
    task.refresh_from_db()
    assert task.prepare_error == ""
    assert task.num_prompts == task.dataset.num_rows
    rows = list(preparation.read_rows(task.dataset))
    stored = [read_prompt(task.prompts_key, n)["row"] for n in range(task.num_prompts)]
    assert stored == rows
    assert task.prompts_bytes > 0


def test_while_a_preparation_lasts_another_call_does_nothing_and_the_planner_is_told(
    task: Task, monkeypatch: pytest.MonkeyPatch
) -> None:
    read, calls = preparation.read_rows, []

    def slow_rows(dataset: Any) -> Any:
        calls.append(dataset)
        preparation.prepare_task(str(task.pk))  # the planner's second call comes meanwhile
        yield from read(dataset)

    monkeypatch.setattr(preparation, "read_rows", slow_rows)
    monkeypatch.setattr(preparation, "ALIVE_S", 0.0)
    before = task.prepare_sent_at
    preparation.prepare_task(str(task.pk))
    task.refresh_from_db()
    assert len(calls) == 1
    assert task.prompts_key
    assert task.prepare_sent_at > before


def test_a_task_that_is_cancelled_is_not_prepared_on(
    task: Task, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = preparation.read_rows

    def rows(dataset: Any) -> Any:
        end_task(task.pk, Task.State.CANCELLED, "Cancelled.", from_states=Task.ACTIVE)
        for row in read(dataset):
            yield row
            pytest.fail("it went on")

    monkeypatch.setattr(preparation, "read_rows", rows)
    monkeypatch.setattr(preparation, "ALIVE_S", 0.0)
    preparation.prepare_task(str(task.pk))
    task.refresh_from_db()
    assert (task.prompts_key, task.prepare_error) == ("", "")


def test_a_fault_that_nobody_foresaw_ends_the_task_instead_of_repeating(
    task: Task, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(path: str) -> Any:
        raise KeyError("template")

    monkeypatch.setattr(preparation, "chat_tokenizer", broken)
    preparation.prepare_task(str(task.pk))
    task.refresh_from_db()
    assert task.prepare_error.startswith("internal error: KeyError")


def test_a_database_that_is_away_is_not_the_tasks_fault(
    task: Task, monkeypatch: pytest.MonkeyPatch
) -> None:
    def locked(*_: Any) -> None:
        raise OperationalError("database is locked")

    monkeypatch.setattr(preparation, "write_prompts", locked)
    with pytest.raises(OperationalError):
        preparation.prepare_task(str(task.pk))
    task.refresh_from_db()
    assert task.prepare_error == ""
