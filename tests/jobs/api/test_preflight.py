"""Checks through the API: begun, looked at, refused, and nobody else's."""

from __future__ import annotations

import uuid
from typing import Any

import pytest
from rest_framework.test import APIClient

from jobs.models import Preflight

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("redis")]


@pytest.fixture
def body(dataset: Any, base_model: Any) -> dict[str, Any]:
    return {
        "base_model": "tiny",
        "dataset": str(dataset.pk),
        "graders": [{"type": "numeric"}],
        "config": {"max_prompt_length": 64},
    }


def test_a_check_is_begun_and_can_be_asked_for(api: APIClient, body: dict[str, Any]) -> None:
    answer = api.post("/api/v1/preflights", body)
    assert answer.status_code == 202
    assert (answer.data["state"], answer.data["report"]) == ("queued", {})
    assert answer.data["name"] == "Unnamed task"
    assert answer.data["config"]["max_prompt_length"] == 64
    found = api.get(f"/api/v1/preflights/{answer.data['id']}")
    assert found.json() == answer.json()
    (listed,) = api.get("/api/v1/preflights").json()["results"]
    assert listed["id"] == answer.json()["id"]
    assert "report" not in listed


def test_it_is_refused_with_the_fields_that_a_task_is_refused_with(
    api: APIClient, body: dict[str, Any]
) -> None:
    wrong = {**body, "config": {"group_size": 1}, "graders": [{"type": "numeric", "which": "?"}]}
    check = api.post("/api/v1/preflights", {**wrong, "name": "x"})
    task = api.post("/api/v1/tasks", {**wrong, "name": "x"})
    assert check.status_code == 400
    assert check.json() == task.json()
    assert set(check.json()["fields"]) == {"config.group_size", "graders.0.which"}


def test_a_field_that_does_not_exist_is_told(api: APIClient, body: dict[str, Any]) -> None:
    answer = api.post("/api/v1/preflights", {**body, "rows": 5})
    assert set(answer.json()["fields"]) == {"rows"}


def test_a_viewer_reads_checks_and_begins_none(
    client_of: Any, vera: Any, world: Any, body: dict[str, Any]
) -> None:
    viewer = client_of(vera)
    assert viewer.get(f"/api/v1/preflights/{world.preflight.pk}").status_code == 200
    answer = viewer.post("/api/v1/preflights", body)
    assert (answer.status_code, answer.json()["code"]) == (403, "permission_denied")


def test_the_fourth_at_once_is_told_to_wait(api: APIClient, body: dict[str, Any]) -> None:
    answers = [api.post("/api/v1/preflights", body) for _ in range(4)]
    assert [answer.status_code for answer in answers] == [202, 202, 202, 429]
    assert answers[3].json()["code"] == "quota"


def test_a_stranger_can_neither_name_the_dataset_nor_the_tenant(
    client_of: Any, mallory: Any, body: dict[str, Any]
) -> None:
    stranger = client_of(mallory)
    foreign = stranger.post("/api/v1/preflights", body)
    unknown = stranger.post("/api/v1/preflights", {**body, "dataset": str(uuid.uuid4())})
    assert (foreign.status_code, foreign.json()) == (400, unknown.json())
    named = stranger.post("/api/v1/preflights", {**body, "tenant": "acme"})
    assert set(named.json()["fields"]) == {"tenant"}
    assert not Preflight.objects.exists()
