"""The OpenAPI document tells of every endpoint, and its page runs under a strict policy."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
from django.urls import reverse
from drf_spectacular.generators import SchemaGenerator
from rest_framework.test import APIClient

from jobs.services.priorities import PRIORITY

from .cases import CASES

pytestmark = pytest.mark.django_db


def test_the_document_has_every_endpoint_with_its_methods(world: Any, api: APIClient) -> None:
    document = SchemaGenerator().get_schema(public=True)
    told = {path: set(item) for path, item in document["paths"].items()}
    for name, case in CASES.items():
        if name in ("api-schema", "api-docs"):
            continue
        url = reverse(name, kwargs=case.arguments(world))
        for key, value in case.arguments(world).items():
            url = url.replace(f"/{value}", f"/{{{key}}}", 1)
        assert told.pop(url) == set(case.methods), url
    assert told == {}


def test_the_document_tells_limits_errors_and_the_token() -> None:
    document = SchemaGenerator().get_schema(public=True)
    schemas = document["components"]["schemas"]
    config = schemas["SubmissionRequest"]["properties"]["config"]["properties"]
    assert config["group_size"]["minimum"] == 2
    assert config["loss_type"]["enum"] == ["grpo", "dr_grpo", "dapo"]
    assert "| 409 | `conflict` |" in document["info"]["description"]
    assert set(schemas["Error"]["properties"]) >= {"code", "message", "fields", "lines"}
    for name in ("Task", "SubmissionRequest", "CloneRequest", "PatchedChangeRequest"):
        assert schemas[name]["properties"]["priority"]["description"] == PRIORITY["help"]
    quotas = schemas["PatchedOperatedTenantRequest"]["properties"]
    assert (quotas["weight"]["minimum"], quotas["weight"]["maximum"]) == (0.01, 1000)
    assert quotas["tokens_per_day"]["maximum"] == 10**15
    for operations in document["paths"].values():
        for operation in operations.values():
            assert "4XX" in operation["responses"]
            assert {"token": []} in operation["security"]


def test_the_page_of_the_document_relaxes_styles_only(api: APIClient) -> None:
    policy = api.get("/api/v1/docs/")["Content-Security-Policy"].split("; ")
    assert "style-src 'self' 'unsafe-inline'" in policy
    assert "script-src 'self'" in policy
    other = api.get("/api/v1/me")["Content-Security-Policy"]
    assert "unsafe-inline" not in other
    script = api.get("/api/v1/docs/?script=")
    assert script["Content-Type"].startswith("application/javascript")


def test_the_web_process_never_imports_torch() -> None:
    code = (
        "import marlaas_site.asgi, sys; from django.urls import get_resolver;"
        " get_resolver().url_patterns; import jobs.admin, jobs.services.tasks;"
        " import rest_framework.settings as s; s.api_settings.EXCEPTION_HANDLER;"
        " print([m for m in ('torch', 'transformers', 'peft', 'numpy') if m in sys.modules])"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert found.returncode == 0, found.stderr
    assert found.stdout.strip() == "[]"
