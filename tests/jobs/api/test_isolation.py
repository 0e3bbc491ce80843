"""No endpoint shows or moves another tenant's rows; every new endpoint must state what it is."""

from __future__ import annotations

import io
import json
import uuid
from types import SimpleNamespace
from typing import Any

import pytest
from django.test import Client
from rest_framework.test import APIClient

from jobs.models import Dataset, Member, Task
from jobs.services.datasets import import_dataset

from .cases import CALLS, CASES, endpoints, of_kind

pytestmark = pytest.mark.django_db

SMALL = {"config": {"max_prompt_length": 64}}  # the fixture's base model takes 256 tokens


def test_every_endpoint_and_method_has_a_case() -> None:
    assert endpoints() == {name: case.methods for name, case in CASES.items()}


@pytest.mark.parametrize(("name", "method"), CALLS)
def test_without_a_token_nothing_answers(world: Any, name: str, method: str) -> None:
    url = CASES[name].url(name, world)
    response = getattr(APIClient(), method)(url)
    assert response.status_code == 401
    assert response.json()["code"] == "not_authenticated"
    assert response["WWW-Authenticate"] == "Token"


@pytest.mark.parametrize(("name", "method"), of_kind("row", "query", "operator"))
def test_a_stranger_gets_404_as_for_what_never_was(
    world: Any, client_of: Any, mallory: Any, name: str, method: str
) -> None:
    nothing = SimpleNamespace(pk=uuid.uuid4(), number=0, dataset_id=uuid.uuid4())
    unknown = SimpleNamespace(task=nothing, step=nothing, group=nothing, version=nothing)
    unknown.label = unknown.dataset_import = unknown.grader = unknown.secret = nothing
    unknown.preflight = nothing
    before = Task.objects.values().get(pk=world.task.pk)
    stranger = client_of(mallory)
    foreign, absent = (
        getattr(stranger, method)(CASES[name].url(name, rows), {}) for rows in (world, unknown)
    )
    assert (foreign.status_code, foreign.json()) == (404, absent.json())
    assert absent.status_code == 404
    assert foreign.json()["code"] == "not_found"
    assert Task.objects.values().get(pk=world.task.pk) == before
    assert Task.objects.count() == 1


@pytest.mark.parametrize(("name", "method"), of_kind("list"))
def test_a_strangers_lists_hold_nothing_of_others(
    world: Any, client_of: Any, mallory: Any, name: str, method: str
) -> None:
    if method != "get":
        return
    response = client_of(mallory).get(CASES[name].url(name, world))
    assert response.status_code == 200
    text = json.dumps(response.json()).lower()
    secrets = [world.task.pk, world.task.dataset_id, world.label.pk, "sums", "addition", "acme"]
    secrets += ["secret", "alice", "gpu-0"]
    assert [secret for secret in map(str, secrets) if secret in text] == []


@pytest.mark.parametrize(
    ("name", "method"), [(n, m) for n, m in of_kind("row", "list", "shared") if m == "get"]
)
def test_a_member_of_the_tenant_sees_it(
    world: Any, client_of: Any, bob: Any, name: str, method: str
) -> None:
    assert client_of(bob).get(CASES[name].url(name, world)).status_code == 200


def test_a_viewer_reads_but_writes_nothing(
    world: Any, client_of: Any, vera: Any, dataset: Any
) -> None:
    viewer = client_of(vera)
    url = f"/api/v1/tasks/{world.task.pk}"
    assert viewer.get(url).status_code == 200
    body = {
        "name": "x",
        "base_model": "tiny",
        "dataset": str(dataset.pk),
        "graders": [{"type": "numeric"}],
    }
    file = io.BytesIO(b'{"prompt": "a"}')
    file.name = "rows.jsonl"
    answers = [
        *(viewer.post(f"{url}/{verb}") for verb in ("cancel", "pause", "resume", "clone")),
        viewer.post("/api/v1/tasks", body),
        viewer.post("/api/v1/datasets", {"name": "x", "file": file}, format="multipart"),
    ]
    assert [answer.status_code for answer in answers] == [403] * 6
    assert {answer.json()["code"] for answer in answers} == {"permission_denied"}
    assert "owners and members may do this" in answers[0].json()["message"]
    assert (Task.objects.count(), Dataset.objects.count()) == (1, 1)


def test_a_strangers_dataset_and_tenant_cannot_be_named_in_a_submission(
    client_of: Any, mallory: Any, umbrella: Any, base_model: Any, dataset: Any
) -> None:
    stranger = client_of(mallory)
    body = {"name": "x", "base_model": "tiny", "graders": [{"type": "length"}]}
    foreign = stranger.post("/api/v1/tasks", {**body, "dataset": str(dataset.pk)})
    unknown = stranger.post("/api/v1/tasks", {**body, "dataset": str(uuid.uuid4())})
    assert foreign.status_code == 400
    assert foreign.json() == unknown.json()
    own = import_dataset(
        tenant=umbrella, user=mallory, name="own", file=io.BytesIO(b'{"prompt": "a"}')
    )
    taken = stranger.post("/api/v1/tasks", {**body, "dataset": str(own.pk), "tenant": "acme"})
    assert taken.status_code == 400
    assert taken.json()["fields"] == {"tenant": ["You are in no tenant 'acme'."]}
    assert Task.objects.count() == 0


def test_a_clone_cannot_take_a_strangers_dataset(
    world: Any, client_of: Any, bob: Any, umbrella: Any, mallory: Any
) -> None:
    file = io.BytesIO(b'{"prompt": "a", "answer": "1"}')
    foreign = import_dataset(tenant=umbrella, user=mallory, name="own", file=file)
    url = f"/api/v1/tasks/{world.task.pk}/clone"
    response = client_of(bob).post(url, {"dataset": str(foreign.pk), **SMALL})
    assert response.status_code == 400
    assert set(response.json()["fields"]) == {"dataset"}


def test_staff_see_no_more_of_tenants_than_others(world: Any, client_of: Any, mallory: Any) -> None:
    mallory.is_staff = mallory.is_superuser = True
    mallory.save()
    assert client_of(mallory).get(f"/api/v1/tasks/{world.task.pk}").status_code == 404


def test_a_session_reads_and_needs_csrf_to_write(world: Any, alice: Any) -> None:
    browser = Client(enforce_csrf_checks=True)
    browser.force_login(alice)
    assert browser.get("/api/v1/me").json()["email"] == "alice@example.com"
    response = browser.post(f"/api/v1/tasks/{world.task.pk}/cancel")
    assert response.status_code == 403
    assert "CSRF" in response.json()["message"]


def test_who_has_left_every_tenant_sees_nothing_of_the_shared_timeline(
    world: Any, client_of: Any, mallory: Any
) -> None:
    client = client_of(mallory)
    assert len(client.get("/api/v1/timeline").data["spans"]) == 1
    Member.objects.filter(user=mallory).delete()
    assert client.get("/api/v1/timeline").data["spans"] == []
