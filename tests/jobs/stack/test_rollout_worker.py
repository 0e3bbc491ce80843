"""manage.py rollout_worker: what is started, and what is refused in one sentence."""

from __future__ import annotations

import os
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.utils import timezone

from jobs.models import BaseModel, Worker
from jobs.services import heartbeats

pytestmark = pytest.mark.django_db


@pytest.fixture
def started(base_model: BaseModel, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """(command, environment) of what took the place of this process."""
    found: list[Any] = []
    monkeypatch.setattr(os, "execve", lambda path, words, env: found.append((words, env)))
    monkeypatch.setattr("socket.gethostname", lambda: "box.lan")
    monkeypatch.setattr(heartbeats, "_names", (0.0, frozenset()))
    return found


def test_a_worker_is_named_after_its_host_and_reads_the_shared_queue_and_its_own(
    started: list[Any],
) -> None:
    call_command("rollout_worker", "tiny")
    ((words, env),) = started
    assert words[words.index("-Q") + 1] == "rollout.tiny,rollout.tiny.rollout-tiny.box.lan"
    assert env["MARLAAS_WORKER_NAME"] == "rollout-tiny.box.lan"
    assert (env["MARLAAS_WORKER_KIND"], env["MARLAAS_BASE_MODELS"]) == ("rollout", "tiny")
    call_command("rollout_worker", "tiny", name="second")
    assert started[1][1]["MARLAAS_WORKER_NAME"] == "second"


def test_a_name_that_is_taken_and_an_unknown_base_model_are_refused(started: list[Any]) -> None:
    Worker.objects.create(
        name="rollout-tiny.box.lan",
        kind="rollout",
        host="box.lan",
        pid=1,
        base_models=["tiny"],
        last_beat_at=timezone.now(),
    )
    with pytest.raises(CommandError, match="is running: give another --name"):
        call_command("rollout_worker", "tiny")
    with pytest.raises(CommandError, match="no enabled base model 'huge'; there are: tiny"):
        call_command("rollout_worker", "huge")
    assert started == []
