"""What the API says of whether the engine serves what was trained."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from rest_framework.test import APIClient

from engine.adapters.canary import Mismatch
from jobs.services.mismatch import record_canary

pytestmark = pytest.mark.django_db

GOOD = Mismatch(mean=0.05, max=0.2, kl=0.002, base_mean=0.4)
BAD = Mismatch(mean=1.5, max=4.0, kl=0.9, base_mean=0.4)


def test_a_version_says_when_and_how_closely_it_was_checked(world: Any, api: APIClient) -> None:
    url = f"/api/v1/tasks/{world.task.pk}"
    assert api.get(f"{url}/versions").json()["results"][0]["canary"] is None
    record_canary(world.task.pk, 1, world.version.digest, GOOD)
    canary = api.get(f"{url}/versions").json()["results"][0]["canary"]
    assert canary.pop("at")
    assert canary == {"mean": 0.05, "max": 0.2, "kl": 0.002, "base_mean": 0.4, "problem": ""}
    (version,) = api.get(f"{url}/snapshot").json()["versions"]
    assert version["canary"]["mean"] == 0.05


def test_a_task_says_that_the_system_paused_it_and_a_person_resumes_it(
    world: Any, api: APIClient
) -> None:
    url = f"/api/v1/tasks/{world.task.pk}"
    assert api.get(url).json()["pause_reason"] == ""
    api.post(f"{url}/pause")
    found = api.get(url).json()
    assert (found["state"], found["pause_reason"]) == ("paused", "")
    api.post(f"{url}/resume")
    record_canary(world.task.pk, 1, world.version.digest, BAD)
    found = api.get(url).json()
    assert found["state"] == "paused"
    assert "1.5 nats on average, over 0.25" in found["pause_reason"]
    assert api.post(f"{url}/resume").json()["pause_reason"] == ""


def test_strangers_learn_nothing_of_it(
    world: Any, client_of: Callable[[Any], APIClient], bob: Any, mallory: Any
) -> None:
    record_canary(world.task.pk, 1, world.version.digest, BAD)
    url = f"/api/v1/tasks/{world.task.pk}"
    assert client_of(bob).get(url).json()["pause_reason"]
    for path in ("", "/versions", "/snapshot", "/events"):
        assert client_of(mallory).get(url + path).status_code == 404
    assert client_of(mallory).post(f"{url}/resume").status_code == 404
