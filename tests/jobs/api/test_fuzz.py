"""Whatever fits the OpenAPI document, or just does not, no endpoint answers with a fault of ours.

Schemathesis makes the requests, in this process and inside one transaction.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator
from typing import Any

import hypothesis
import pytest
import schemathesis
from django.core.signals import request_finished, request_started
from django.core.wsgi import get_wsgi_application
from django.db import close_old_connections
from drf_spectacular.generators import SchemaGenerator
from hypothesis import HealthCheck, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from jobs.api import throttles
from jobs.models import Task
from jobs.services import trials

pytestmark = [pytest.mark.django_db, pytest.mark.slow]

EXAMPLES = 12  # an operation
# What alice's rows say; "secret" alone is a parameter of reward functions and an endpoint, too
ALICES = re.compile(r"secret (reason|line|token|rows|grader|key)|secret\.(csv|example)|s3cret")
CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
]


@pytest.fixture
def document(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The loaded document; requests are not counted, and leave the test's transaction open.

    Nor does any wait for a worker, whose silence is a 503 that is nobody's fault.
    """
    answers = {"try": {"graders": [], "samples": []}, "check": {"problem": None}}
    monkeypatch.setattr(trials, "ask", lambda kind, *_: answers[kind])
    for throttle in (throttles.ByUser, throttles.Writes, throttles.NewTokens):
        monkeypatch.setattr(throttle, "get_rate", lambda self: None)
    document = SchemaGenerator().get_schema(public=True)
    schema = schemathesis.openapi.from_dict(document)
    schema.app = get_wsgi_application()
    for signal in (request_started, request_finished):
        signal.disconnect(close_old_connections)
    yield schema
    for signal in (request_started, request_finished):
        signal.connect(close_old_connections)


def _call_all(document: Any, client: Any, rows: dict[str, Any], judge: Any) -> int:
    """Call every operation with made-up requests on these rows; returns how many there were."""
    headers = {"Authorization": client._credentials["HTTP_AUTHORIZATION"]}
    count = 0
    for result in document.get_all_operations():
        operation = result.ok()

        @hypothesis.given(case=operation.as_strategy())
        @settings(
            max_examples=EXAMPLES,
            deadline=None,
            derandomize=True,
            database=None,
            suppress_health_check=list(HealthCheck),
        )
        def call(case: Any) -> None:
            nonlocal count
            case.path_parameters = {
                key: rows.get(key, value) for key, value in (case.path_parameters or {}).items()
            }
            case.headers = {**(case.headers or {}), **headers}
            judge(case)
            count += 1

        call()
    return count


def _rows(world: Any) -> dict[str, str]:
    return {
        "task_id": str(world.task.pk),
        "number": "0",
        "group_id": str(world.group.pk),
        "dataset_id": str(world.task.dataset_id),
        "token_id": str(uuid.uuid4()),
        "import_id": str(world.dataset_import.pk),
        "grader_id": str(world.grader.pk),
        "secret_id": str(world.secret.pk),
        "slug": "acme",
    }


def test_no_request_makes_a_fault(world: Any, api: Any, alice: Any, document: Any) -> None:
    alice.is_staff = True
    alice.save()

    def judge(case: Any) -> None:
        case.call_and_validate(checks=CHECKS)

    assert _call_all(document, api, _rows(world), judge) > 200


def test_no_request_of_a_stranger_reaches_a_row(
    world: Any, client_of: Any, mallory: Any, document: Any
) -> None:
    before = Task.objects.values().get(pk=world.task.pk)

    def judge(case: Any) -> None:
        response = case.call()
        if case.path_parameters:
            assert response.status_code in (404, 405, 406, 415), (case.path, response.text)
        assert str(world.task.pk) not in response.text
        assert ALICES.search(response.text) is None

    assert _call_all(document, client_of(mallory), _rows(world), judge) > 200
    assert Task.objects.values().get(pk=world.task.pk) == before
