"""Operators see every tenant and set its quotas; nobody else knows that they can."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client

from jobs.models import Task

pytestmark = pytest.mark.django_db


@pytest.fixture
def operator(client_of: Any, make_user: Any, umbrella: Any) -> Any:
    user = make_user("olga", umbrella, "viewer")
    user.is_staff = True
    user.save()
    return client_of(user)


def test_an_operator_sees_every_tenant_with_its_use(
    operator: Any, acme: Any, make_task: Any
) -> None:
    make_task(state=Task.State.RUNNING)
    make_task(state=Task.State.PAUSED)
    make_task()
    rows = {row["slug"]: row for row in operator.get("/api/v1/operator/tenants").json()["results"]}
    assert set(rows) == {"acme", "umbrella"}
    acme_row = rows["acme"]
    assert (acme_row["num_running"], acme_row["num_queued"]) == (2, 1)
    assert (acme_row["num_members"], acme_row["max_concurrent_tasks"]) == (1, 2)


def test_an_operator_sets_quotas_and_nothing_else(operator: Any, acme: Any) -> None:
    url = "/api/v1/operator/tenants/acme"
    changes = {"max_concurrent_tasks": 9, "tokens_per_day": 10**9, "weight": 2}
    assert operator.patch(url, {**changes, "slug": "renamed"}).status_code == 400
    response = operator.patch(url, changes)
    assert response.status_code == 200
    acme.refresh_from_db()
    assert (acme.max_concurrent_tasks, acme.tokens_per_day, acme.weight) == (9, 10**9, 2.0)
    assert (acme.slug, acme.max_lora_rank) == ("acme", 64)
    assert operator.get(url).json() == response.json()
    assert operator.get("/api/v1/operator/tenants/nowhere").status_code == 404


def test_a_suspended_tenant_is_told_so(operator: Any, api: Any) -> None:
    operator.patch("/api/v1/operator/tenants/acme", {"is_suspended": True})
    assert api.get("/api/v1/me").json()["tenants"][0]["is_suspended"] is True


PAGES = (
    "",
    "jobs/user/",
    "jobs/user/add/",
    "jobs/tenant/",
    "jobs/tenant/add/",
    "jobs/basemodel/",
    "jobs/basemodel/add/",
    "jobs/task/",
    "jobs/dataset/",
    "jobs/step/",
    "jobs/group/",
    "jobs/policyversion/",
    "jobs/tokenusage/",
    "jobs/worker/",
)


@pytest.mark.parametrize("page", PAGES)
def test_the_admin_shows_its_pages_to_superusers_only(
    world: Any, alice: Any, mallory: Any, page: str
) -> None:
    browser = Client()
    browser.force_login(mallory)
    assert browser.get(f"/ops/admin/{page}").status_code == 302
    alice.is_staff = alice.is_superuser = True
    alice.save()
    browser.force_login(alice)
    assert browser.get(f"/ops/admin/{page}").status_code == 200


def test_the_admin_cannot_write_what_services_write(world: Any, alice: Any) -> None:
    alice.is_staff = alice.is_superuser = True
    alice.save()
    browser = Client()
    browser.force_login(alice)
    url = f"/ops/admin/jobs/task/{world.task.pk}/"
    assert browser.get(f"{url}change/").status_code == 200
    assert browser.post(f"{url}change/", {"state": "succeeded"}).status_code == 403
    assert browser.post(f"{url}delete/", {"post": "yes"}).status_code == 403
    world.task.refresh_from_db()
    assert world.task.state == "running"
