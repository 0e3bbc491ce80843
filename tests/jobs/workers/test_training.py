"""Whatever ends a pass, its step does not stay with a trainer that does something else."""

import os
import signal
import time
import uuid
from types import SimpleNamespace
from typing import Any

import pytest
from django.db import OperationalError

from engine.errors import ModelError
from jobs.models import BaseModel, PolicyVersion, Step
from jobs.services import passes
from jobs.workers import hosting, training

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("redis")]


@pytest.fixture
def step(task: Any, monkeypatch: pytest.MonkeyPatch) -> Step:
    """Dispatched to train, with a version 0 whose files are gone: the pass fails."""
    alive = SimpleNamespace(incarnation="inc", stop=lambda: None)
    monkeypatch.setattr(hosting, "_heartbeat", alive)
    task.state = "running"
    task.save()
    PolicyVersion.objects.create(task=task, number=0, digest="d0", key="gone")
    return Step.objects.create(task=task, number=0, state="training", fence=1, ready_order=3)


def _train(step: Step) -> None:
    training.train({"step": step.pk, "fence": step.fence})


def test_a_pass_that_fails_goes_back_with_its_error(step: Step) -> None:
    _train(step)
    step.refresh_from_db()
    assert (step.state, step.errors, step.last_error) == ("ready", 1, "artifact gone is not there")


def test_a_failure_that_could_not_be_written_down_is_given_up_at_the_next_beat(
    step: Step, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any) -> bool:
        raise OperationalError("database or disk is full")

    monkeypatch.setattr(passes, "fail_pass", full)
    with pytest.raises(OperationalError):
        _train(step)
    step.refresh_from_db()
    assert (step.state, step.holder) == ("training", "inc")
    training.tend("inc")
    step.refresh_from_db()
    assert step.holder == passes.NOBODY


def test_a_pass_taken_without_an_answer_is_given_up_at_the_next_beat(
    step: Step, monkeypatch: pytest.MonkeyPatch
) -> None:
    take = passes.take_pass

    def unanswered(*arguments: Any) -> None:
        take(*arguments)
        raise OperationalError("server closed the connection unexpectedly")

    monkeypatch.setattr(passes, "take_pass", unanswered)
    with pytest.raises(OperationalError):
        _train(step)
    training.tend("inc")
    step.refresh_from_db()
    assert step.holder == passes.NOBODY


def test_the_pass_under_way_is_kept(step: Step, monkeypatch: pytest.MonkeyPatch) -> None:
    held = []

    def busy(taken: passes.Pass) -> bool:
        training.tend("inc")
        held.append(Step.objects.get(pk=step.pk).holder)
        return False

    monkeypatch.setattr(training, "_train", busy)
    _train(step)
    assert held == ["inc"]


@pytest.fixture
def gone(base_model: BaseModel, settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two base models, of which "tiny" cannot be loaded."""
    BaseModel.objects.create(slug="good", name="Good", path="/good")
    settings.WORKER_BASE_MODELS = ["tiny", "good"]
    monkeypatch.setattr(training, "_trainers", {})
    monkeypatch.setattr(training, "_unloaded", [])

    def load(row: BaseModel) -> None:
        if row.slug == "tiny":
            raise OSError("no such directory")
        training._trainers[row.slug] = object()

    monkeypatch.setattr(training, "trainer", load)


@pytest.mark.usefixtures("gone")
def test_a_base_model_that_cannot_be_loaded_leaves_the_others_served() -> None:
    training.load()
    assert training.served() == ["good"]


@pytest.mark.usefixtures("gone")
def test_a_trainer_without_any_base_model_does_not_start(settings: Any) -> None:
    settings.WORKER_BASE_MODELS = ["tiny"]
    with pytest.raises(ModelError):
        training.load()


@pytest.mark.usefixtures("gone")
def test_a_trainer_that_lacks_a_base_model_leaves_after_a_while_when_it_is_idle(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    signals: list[int] = []
    monkeypatch.setattr(os, "kill", lambda pid, number: signals.append(number))
    monkeypatch.setattr(training, "_started", time.monotonic())
    training.load()
    training.tend(str(uuid.uuid4()))
    assert signals == []
    monkeypatch.setattr(training, "RELOAD_S", 0.0)
    monkeypatch.setattr(training, "_under_way", (1, 1))
    training.tend(str(uuid.uuid4()))
    assert signals == []
    monkeypatch.setattr(training, "_under_way", None)
    training.tend(str(uuid.uuid4()))
    assert signals == [signal.SIGTERM]
