"""A secret's value goes in over the API and comes out nowhere."""

from __future__ import annotations

from typing import Any

import pytest

from jobs.models import Secret
from jobs.services.secrets import secrets_of

pytestmark = pytest.mark.django_db
VALUE = "sk-very-private-0123"
NEW = {"name": "judge", "host": "api.example.com", "value": VALUE}


def test_no_answer_holds_a_value(api: Any, acme: Any, task: Any) -> None:
    made = api.post("/api/v1/secrets", NEW)
    assert made.status_code == 201
    url = f"/api/v1/secrets/{made.json()['id']}"
    answers = [
        made,
        api.post("/api/v1/secrets", NEW),  # of the same name
        api.get("/api/v1/secrets"),
        api.get(url),
        api.patch(url, {"value": f"{VALUE}2"}),
        api.patch(url, {"value": f"{VALUE}\n2"}),
        api.patch(url, {"host": "evil.example"}),
        api.delete(url),
    ]
    assert [answer.status_code for answer in answers] == [201, 400, 200, 200, 200, 400, 400, 200]
    sealed = "gAAAA"  # what every Fernet token begins with
    assert [a for a in answers if VALUE in a.content.decode() or sealed in a.content.decode()] == []


def test_a_value_and_host_are_replaced_together(api: Any, acme: Any) -> None:
    url = f"/api/v1/secrets/{api.post('/api/v1/secrets', NEW).json()['id']}"
    answer = api.patch(url, {"host": "evil.example"})
    assert answer.json()["fields"].keys() == {"value"}
    assert secrets_of(acme.pk)["judge"].host == "api.example.com"
    assert api.patch(url, {"host": "b.example", "value": "new"}).json()["host"] == "b.example"
    assert secrets_of(acme.pk)["judge"].value == "new"


def test_deleting_says_which_tasks_will_miss_it(api: Any, task: Any) -> None:
    task.graders = [{"type": "remote", "url": "https://a.example/", "secret": "judge"}]
    task.save()
    url = f"/api/v1/secrets/{api.post('/api/v1/secrets', NEW).json()['id']}"
    using = [{"id": str(task.pk), "name": "sums", "state": "queued"}]
    assert api.get(url).json()["tasks"] == using
    assert api.delete(url).json() == {"tasks": using}
    assert not Secret.objects.exists()
    assert api.get(url).status_code == 404
