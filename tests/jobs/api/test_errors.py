"""Whatever is wrong with a request, the answer is JSON that says what, where, and what to do."""

from __future__ import annotations

import base64
import io
import json
from typing import Any

import pytest
from rest_framework.test import APIClient

from jobs.api import throttles
from jobs.models import Dataset, Task, TokenLabel

pytestmark = pytest.mark.django_db


def raw(client: APIClient, path: str, body: bytes, kind: str = "application/json") -> Any:
    return client.generic("POST", f"/api/v1/{path}", body, content_type=kind)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"{", "Not JSON at character 2"),
        (b"", "Not JSON at character 1"),
        (b'{"name": NaN}', "NaN is not JSON"),
        (b'{"name": 1, "name": 2}', "The key 'name' comes twice."),
        (b'{"name": "\\ud800"}', "half of a surrogate pair"),
        (b'{"name": "\\u0000"}', "NUL"),
        (b'{"name": "\xff"}', "The body is not UTF-8 at byte 10."),
        (b"[" * 100_000, "Nested more than 32 deep."),
        (b'{"n": ' + b"9" * 5000 + b"}", "is too large."),
    ],
)
def test_malformed_json_is_told_with_its_place(api: APIClient, body: bytes, message: str) -> None:
    response = raw(api, "tasks", body)
    if not body:
        assert response.status_code == 400
        return
    assert (response.status_code, response.json()["code"]) == (400, "parse_error")
    assert message in response.json()["message"]


@pytest.mark.parametrize("body", [b"[]", b"3", b'"x"', b"null", b"true"])
def test_a_body_that_is_no_object_is_refused(world: Any, api: APIClient, body: bytes) -> None:
    for path in ("tasks", "tokens", f"tasks/{world.task.pk}/clone"):
        response = raw(api, path, body)
        assert (response.status_code, response.json()["code"]) == (400, "invalid"), path
        assert set(response.json()["fields"]) == {"body"}


def test_a_wrong_content_type_method_or_accept_is_told(api: APIClient, world: Any) -> None:
    for kind in ("text/plain", "application/xml", "application/x-www-form-urlencoded"):
        response = raw(api, "tasks", b"a=1", kind)
        assert (response.status_code, response.json()["code"]) == (415, "unsupported_media_type")
    response = api.delete(f"/api/v1/tasks/{world.task.pk}")
    assert (response.status_code, response.json()["code"]) == (405, "method_not_allowed")
    response = api.get("/api/v1/me", HTTP_ACCEPT="text/html")
    assert (response.status_code, response.json()["code"]) == (406, "not_acceptable")


@pytest.mark.parametrize("path", ["nothing", "tasks/", "tasks/7", "tasks/x/steps", "me/"])
def test_a_path_that_is_no_endpoint_is_404_in_json(api: APIClient, path: str) -> None:
    for method in ("get", "post", "put", "patch", "delete"):
        response = getattr(api, method)(f"/api/v1/{path}")
        assert (response.status_code, response.json()["code"]) == (404, "not_found")


def test_too_large_a_body_is_413(api: APIClient, settings: Any) -> None:
    response = raw(api, "tasks", b'{"name": "' + b"x" * 2**20 + b'"}')
    assert (response.status_code, response.json()["code"]) == (413, "too_large")
    settings.MAX_UPLOAD_MIB = 1
    file = io.BytesIO(b"x" * (3 * 2**20))
    response = api.post("/api/v1/datasets", {"name": "x", "file": file}, format="multipart")
    assert (response.status_code, response.json()["code"]) == (413, "too_large")
    assert response.json()["message"] == "The request may have at most 2 MiB."


@pytest.mark.parametrize(
    "header",
    ["Token", "Token ", "Token a b", "Token nonsense", "Token mls_\xe9", "Token \x00", "Basic x"],
)
def test_a_wrong_token_is_401(header: str) -> None:
    response = APIClient().get("/api/v1/me", HTTP_AUTHORIZATION=header)
    assert response.status_code == 401
    assert set(response.json()) == {"code", "message"}


def test_an_expired_token_and_that_of_an_inactive_user_open_nothing(
    client_of: Any, alice: Any
) -> None:
    client = client_of(alice)
    alice.is_active = False
    alice.save()
    assert client.get("/api/v1/me").status_code == 401
    alice.is_active = True
    alice.save()
    alice.auth_token_set.update(expiry="2020-01-01T00:00Z")
    assert client.get("/api/v1/me").status_code == 401


def test_a_submission_with_everything_wrong_names_every_field(
    api: APIClient, base_model: Any
) -> None:
    response = api.post(
        "/api/v1/tasks",
        {
            "base_model": "huge",
            "dataset": "7",
            "config": {"batch_size": "many", "epochs": 3},
            "graders": [{"type": "numeric", "which": "middle"}, {"type": "magic"}],
        },
    )
    assert (response.status_code, response.json()["code"]) == (400, "invalid")
    assert response.json()["message"] == "7 fields are wrong."
    assert set(response.json()["fields"]) == {
        "name",
        "base_model",
        "dataset",
        "config.batch_size",
        "config.epochs",
        "graders.0.which",
        "graders.1.type",
    }
    assert Task.objects.count() == 0


def test_a_field_that_does_not_exist_is_refused(world: Any, api: APIClient) -> None:
    response = api.post("/api/v1/tasks", {"nmae": "x"})
    assert response.json()["fields"] == {
        "nmae": [
            "There is no field 'nmae'. Did you mean name? There are name, base_model, dataset,"
            " config, graders, priority, tenant."
        ]
    }
    for verb in ("cancel", "pause", "resume", "clone"):
        response = api.post(f"/api/v1/tasks/{world.task.pk}/{verb}", {"reason": "x"})
        assert (response.status_code, set(response.json()["fields"])) == (400, {"reason"})
    assert "There is no field 'reason'. " in response.json()["fields"]["reason"][0]


@pytest.mark.parametrize(
    ("method", "path", "body", "wrong", "meant"),
    [
        ("patch", "operator/tenants/acme", {"wieght": 2}, "wieght", "weight"),
        ("patch", "operator/tenants/acme", {"slug": "x"}, "slug", ""),
        ("post", "tokens", {"name": "x", "expires_in_day": 1}, "expires_in_day", "expires_in_days"),
        ("post", "graders", {"nmae": "x"}, "nmae", "name"),
        ("post", "graders/check", {"sourc": "x"}, "sourc", "source"),
        ("post", "secrets", {"hosts": "x"}, "hosts", "host"),
        ("post", "preflights", {"grader": []}, "grader", "graders"),
        (
            "post",
            "dataset-imports",
            {"name": "x", "source": {"kind": "hub", "id": "a/b", "max_row": 1}},
            "source.max_row",
            "max_rows",
        ),
        (
            "post",
            "dataset-imports",
            {"name": "x", "source": {"kind": "hub", "id": "a/b"}, "options": {"encodng": "x"}},
            "options.encodng",
            "encoding",
        ),
        (
            "post",
            "graders/try",
            {"graders": [{"type": "numeric"}], "samples": [{"complet": "x"}]},
            "samples.0.complet",
            "completion",
        ),
    ],
)
def test_no_field_of_a_request_is_ignored(
    world: Any,
    client_of: Any,
    alice: Any,
    method: str,
    path: str,
    body: dict[str, Any],
    wrong: str,
    meant: str,
) -> None:
    alice.is_staff = True
    alice.save()
    response = getattr(client_of(alice), method)(f"/api/v1/{path}", body)
    assert response.status_code == 400
    assert list(response.json()["fields"]) == [wrong]
    (sentence,) = response.json()["fields"][wrong]
    assert sentence.startswith(f"There is no field '{wrong.rpartition('.')[2]}'.")
    assert f"Did you mean {meant}?" in sentence if meant else "There are weight" in sentence


@pytest.mark.parametrize("path", ["datasets", "datasets/preview"])
def test_no_field_of_an_upload_is_ignored(api: APIClient, path: str) -> None:
    form = {"name": "x", "file": io.BytesIO(b"{}"), "encodng": "utf-8"}
    if path != "datasets":
        del form["name"]
    response = api.post(f"/api/v1/{path}", form, format="multipart")
    assert (response.status_code, list(response.json()["fields"])) == (400, ["encodng"])
    assert "Did you mean encoding?" in response.json()["fields"]["encodng"][0]


@pytest.mark.parametrize("key", ["", "x" * 101, "a\tb"])
def test_an_idempotency_key_must_be_short_text(api: APIClient, key: str) -> None:
    response = api.post("/api/v1/tasks", {}, HTTP_IDEMPOTENCY_KEY=key)
    assert response.status_code == 400
    assert ("Idempotency-Key" in response.json()["fields"]) == bool(key)


@pytest.mark.parametrize(
    ("form", "fields"),
    [
        ({}, {"name", "file"}),
        ({"name": "x"}, {"file"}),
        ({"name": "x", "file": "text"}, {"file"}),
        ({"file": b'{"prompt": "a"}'}, {"name"}),
        ({"name": "x" * 101, "file": b'{"prompt": "a"}'}, {"name"}),
        ({"name": "x", "file": b"", "tenant": "umbrella"}, {"tenant"}),
        ({"name": "x", "file": b""}, {"file"}),
    ],
)
def test_an_upload_is_refused_by_field(
    api: APIClient, form: dict[str, Any], fields: set[str]
) -> None:
    form = {
        key: io.BytesIO(value) if isinstance(value, bytes) else value for key, value in form.items()
    }
    response = api.post("/api/v1/datasets", form, format="multipart")
    assert response.status_code == 400
    assert set(response.json()["fields"]) == fields
    assert Dataset.objects.count() == 0


def test_an_uploads_bad_lines_are_listed(api: APIClient) -> None:
    file = io.BytesIO(b'{"prompt": "a"}\n{"prompt": 3}\nnonsense\n')
    response = api.post("/api/v1/datasets", {"name": "x", "file": file}, format="multipart")
    assert response.status_code == 400
    assert response.json() == {
        "code": "invalid_dataset",
        "message": "2 lines are wrong; the first is line 2: 'prompt' must be a list of 1 to 100"
        " messages, not 3.",
        "fields": {"file": [response.json()["message"]]},
        "lines": [
            {"line": 2, "message": "'prompt' must be a list of 1 to 100 messages, not 3."},
            {"line": 3, "message": "Not JSON at character 1: Expecting value."},
        ],
        "num_bad_lines": 2,
    }


@pytest.mark.parametrize(
    "body", [b"", b"--x\r\n", b'--x\r\nContent-Disposition: form-data; name="na', b"\xff" * 100]
)
def test_a_form_that_is_none_is_refused(api: APIClient, body: bytes) -> None:
    for kind in (
        "multipart/form-data; boundary=x",
        "multipart/form-data",
        "multipart/form-data; b",
    ):
        response = raw(api, "datasets", body, kind)
        assert response.status_code == 400
        assert response.json()["code"] in ("parse_error", "invalid")


@pytest.mark.parametrize(
    ("path", "field"),
    [
        ("timeline?minutes=0", "minutes"),
        ("timeline?minutes=1441", "minutes"),
        ("timeline?minutes=-1", "minutes"),
        ("timeline?minutes=%C2%B2", "minutes"),
        ("datasets/{dataset}/preview?limit=101", "limit"),
        ("datasets/{dataset}/preview?limit=x", "limit"),
        ("groups/{group}/trajectories?start=9999999", "start"),
        ("groups/{group}/trajectories?limit=0", "limit"),
        ("tasks/{task}/events?since=-1", "since"),
        ("tasks/{task}/events?since=99999999999999999999", "since"),
        ("tasks/{task}/events?limit=501", "limit"),
        ("tasks/{task}/events?epoch=now", "epoch"),
        ("tasks?state=asleep", "state"),
        ("quota?tenant=umbrella", "tenant"),
        ("tasks/{task}/snapshot?buckets=0", "buckets"),
    ],
)
def test_a_wrong_query_is_told_by_field(world: Any, api: APIClient, path: str, field: str) -> None:
    path = path.format(dataset=world.task.dataset_id, group=world.group.pk, task=world.task.pk)
    response = api.get(f"/api/v1/{path}")
    assert (response.status_code, response.json()["code"]) == (400, "invalid")
    assert set(response.json()["fields"]) == {field}


LISTS = [
    "tasks",
    "datasets",
    "tenants",
    "base-models",
    "tasks/{task}/steps",
    "tasks/{task}/steps/0/groups",
    "tasks/{task}/versions",
    "tasks/{task}/spans",
]


@pytest.mark.parametrize("path", LISTS)
@pytest.mark.parametrize(
    "query",
    [
        "cursor=nonsense",
        "cursor=" + base64.b64encode(b"p=nonsense\0").decode(),
        "cursor=" + base64.b64encode(b"\xff\xfe").decode(),
        "page_size=0",
        "page_size=201",
        "page_size=x",
    ],
)
def test_a_cursor_or_size_of_ones_own_making_is_refused(
    world: Any, api: APIClient, path: str, query: str
) -> None:
    response = api.get(f"/api/v1/{path.format(task=world.task.pk)}?{query}")
    if query.startswith("cursor=" + base64.b64encode(b"p=nonsense").decode()[:6]) and (
        path in ("tenants", "base-models")
    ):
        assert response.status_code in (200, 400)  # there a position may be any text
    else:
        assert response.status_code == 400, response.content
        assert response.json()["code"] == "parse_error"


@pytest.mark.parametrize(
    ("body", "fields"),
    [
        ({}, {"name"}),
        ({"name": ""}, {"name"}),
        ({"name": "x" * 101}, {"name"}),
        ({"name": "x", "expires_in_days": 0}, {"expires_in_days"}),
        ({"name": "x", "expires_in_days": 366}, {"expires_in_days"}),
        ({"name": "x", "expires_in_days": "soon"}, {"expires_in_days"}),
    ],
)
def test_a_token_is_refused_by_field(
    api: APIClient, body: dict[str, Any], fields: set[str]
) -> None:
    response = api.post("/api/v1/tokens", body)
    assert (response.status_code, set(response.json()["fields"])) == (400, fields)
    assert TokenLabel.objects.count() == 0


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"weight": 0}, "weight"),
        ({"weight": "nan"}, "weight"),
        ({"weight": "inf"}, "weight"),
        ({"weight": 1000.5}, "weight"),
        ({"max_lora_rank": 0}, "max_lora_rank"),
        ({"max_lora_rank": 513}, "max_lora_rank"),
        ({"max_concurrent_tasks": -1}, "max_concurrent_tasks"),
        ({"max_concurrent_tasks": 10**30}, "max_concurrent_tasks"),
        ({"tokens_per_day": 10**30}, "tokens_per_day"),
        ({"tokens_per_day": "many"}, "tokens_per_day"),
        ({"max_stored_mib": 2**63 - 1}, "max_stored_mib"),
        ({"is_suspended": "perhaps"}, "is_suspended"),
    ],
)
def test_a_quota_is_refused_by_field(
    client_of: Any, alice: Any, acme: Any, body: dict[str, Any], field: str
) -> None:
    alice.is_staff = True
    alice.save()
    response = client_of(alice).patch("/api/v1/operator/tenants/acme", body)
    assert (response.status_code, set(response.json()["fields"])) == (400, {field})


def test_a_fault_of_ours_is_told_by_an_id_that_the_log_has_too(
    api: APIClient, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*args: Any) -> None:
        raise RuntimeError("password of the database: hunter2")

    monkeypatch.setattr("jobs.api.catalogue.catalogue", fail)
    api.raise_request_exception = False
    response = api.get("/api/v1/reward-functions")
    assert (response.status_code, response.json()["code"]) == (500, "server_error")
    assert "hunter2" not in json.dumps(response.json())
    incident = response.json()["message"].partition("(id ")[2].strip(").")
    assert incident in caplog.text
    assert "hunter2" in caplog.text


def test_too_many_requests_are_429_with_the_time_to_wait(
    api: APIClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(throttles.Writes, "rate", "2/min", raising=False)
    answers = [api.post("/api/v1/tokens", {}) for _ in range(3)]
    assert [answer.status_code for answer in answers] == [400, 400, 429]
    assert answers[2].json()["code"] == "throttled"
    assert 0 < int(answers[2]["Retry-After"]) <= 60
    assert api.get("/api/v1/me").status_code == 200  # reading goes on


def test_requests_pass_while_the_cache_is_away(
    api: APIClient, settings: Any, caplog: pytest.LogCaptureFixture
) -> None:
    settings.CACHES = {
        "default": {
            "BACKEND": "django.core.cache.backends.redis.RedisCache",
            "LOCATION": "redis://127.0.0.1:1/0",
        }
    }
    assert api.get("/api/v1/me").status_code == 200
    assert "request not counted" in caplog.text
