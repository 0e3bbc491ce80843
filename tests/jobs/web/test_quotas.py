"""Quotas have one set of limits, wherever an operator sets them."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib import admin
from django.test import RequestFactory

from jobs.models import Tenant
from jobs.services.tenants import QUOTAS

pytestmark = pytest.mark.django_db

VALUES = {
    "weight": 1,
    "max_concurrent_tasks": 4,
    "tokens_per_day": 0,
    "max_lora_rank": 64,
    "max_step_tokens": 0,
    "max_stored_mib": 0,
}
# (name, smallest, largest, too small, too large)
LIMITS = [
    ("weight", 0.01, 1000, 0.009, 1000.5),
    ("max_concurrent_tasks", 0, 10_000, -1, 10_001),
    ("tokens_per_day", 0, 10**15, -1, 2**63 - 1),
    ("max_lora_rank", 1, 512, 0, 513),
    ("max_step_tokens", 0, 10**12, -1, 2**63 - 1),
    ("max_stored_mib", 0, 10**9, -1, 2**63 - 1),
]


@pytest.mark.parametrize(("name", "low", "high", "below", "above"), LIMITS)
def test_the_form_the_api_and_the_admin_take_the_same_quotas(
    browser_of: Any,
    alice: Any,
    acme: Any,
    name: str,
    low: float,
    high: float,
    below: float,
    above: float,
) -> None:
    alice.is_staff = alice.is_superuser = True
    alice.save()
    browser = browser_of(alice)
    request = RequestFactory().get("/")
    request.user = alice
    admin_form = admin.site.get_model_admin(Tenant).get_form(request)
    for value, is_taken in ((low, True), (high, True), (below, False), (above, False)):
        page = browser.post("/ops/tenants/acme/", {**VALUES, name: value})
        answer = browser.patch(
            "/api/v1/operator/tenants/acme", {name: value}, content_type="application/json"
        )
        wrong = admin_form({**VALUES, name: value, "slug": "acme", "name": "Acme"}, instance=acme)
        found = (page.status_code, answer.status_code, name in wrong.errors)
        assert found == ((302, 200, False) if is_taken else (422, 400, True)), value


@pytest.mark.parametrize("value", ["nan", "inf", "1e999", ""])
def test_a_weight_is_a_number_in_the_form_too(
    browser_of: Any, alice: Any, acme: Any, value: str
) -> None:
    alice.is_staff = True
    alice.save()
    answer = browser_of(alice).post("/ops/tenants/acme/", {**VALUES, "weight": value})
    assert answer.status_code == 422
    acme.refresh_from_db()
    assert acme.weight == 1.0


def test_the_form_says_of_each_quota_its_range_and_its_default(
    browser_of: Any, alice: Any, acme: Any
) -> None:
    alice.is_staff = True
    alice.save()
    text = browser_of(alice).get("/ops/tenants/acme/").content.decode()
    assert "3 gets three times the device-seconds of 1 while both have work" in text
    for part in (
        "from 0.01 to 1,000; default 1.0",
        "from 0 to 10,000; default 4; 0: no limit",
        "from 1 to 512; default 64<",
    ):
        assert part in text
    assert set(VALUES) == set(QUOTAS) - {"is_suspended"}
