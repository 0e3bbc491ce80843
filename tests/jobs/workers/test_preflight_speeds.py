"""How much a check asks for at once, and what it takes for the machine's speed."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from engine.preflight import Outcome
from jobs.models import Span, Task, Worker
from jobs.workers import preflight_speeds

pytestmark = pytest.mark.django_db


def _engine(name: str, **fields: Any) -> None:
    fields = {"slots": 128, "base_models": ["tiny"], "last_beat_at": timezone.now(), **fields}
    Worker.objects.create(name=name, kind="rollout", host="here", pid=1, **fields)


def test_busy_engines_are_asked_for_less_at_once(base_model: Any) -> None:
    assert preflight_speeds.window("tiny") == preflight_speeds.MIN_WINDOW  # nobody lives
    _engine("r1")
    _engine("r2", base_models=["other"])
    assert preflight_speeds.window("tiny") == 32
    Worker.objects.update(stats={"num_running": 5})
    assert preflight_speeds.window("tiny") == 16
    _engine("r3", slots=4_000)
    assert preflight_speeds.window("tiny") == preflight_speeds.MAX_WINDOW


def test_speeds_are_what_engines_tell_and_training_lately_was(task: Task) -> None:
    task.state = Task.State.RUNNING
    task.save()
    _engine("r1", stats={"tokens_per_s": 300.0})
    _engine("r2", stats={"tokens_per_s": 100.0})
    now = timezone.now()
    for hours, tokens in ((1, 50), (2, 150), (30, 9_000)):
        start = now - timedelta(hours=hours, seconds=10)
        Span.objects.create(
            task=task,
            stage="training",
            worker="t",
            step=0,
            started_at=start,
            ended_at=start + timedelta(seconds=10),
            tokens=tokens,
        )
    found = preflight_speeds.speeds(task.base_model, [], 0.0)
    assert (found.tokens_per_s, found.train_tokens_per_s) == (400.0, 10.0)
    assert found.num_other_tasks == 1


def test_a_check_that_was_faster_than_engines_tell_counts_itself(base_model: Any) -> None:
    outcomes = [Outcome(0, index, num_tokens=50, num_turns=1) for index in range(4)]
    assert preflight_speeds.speeds(base_model, outcomes, 2.0).tokens_per_s == 100.0
