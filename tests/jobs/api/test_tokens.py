"""Tokens are shown once, stored as digests, listed, and revoked at once."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone
from knox.models import AuthToken
from rest_framework.test import APIClient

from jobs.api import throttles
from jobs.models import TokenLabel
from jobs.services import accounts

pytestmark = pytest.mark.django_db


def test_a_token_opens_the_api_until_it_is_revoked(api: APIClient) -> None:
    response = api.post("/api/v1/tokens", {"name": "laptop", "expires_in_days": 7})
    assert response.status_code == 201
    made = response.json()
    assert made["token"].startswith("mls_")
    client = APIClient()
    client.credentials(HTTP_AUTHORIZATION=f"Token {made['token']}")
    assert client.get("/api/v1/me").json()["email"] == "alice@example.com"

    listed = api.get("/api/v1/tokens").json()
    assert [item["name"] for item in listed] == ["laptop"]
    assert listed[0] == {key: value for key, value in made.items() if key != "token"}
    assert made["token"].startswith(listed[0]["start"])
    assert made["token"] not in str(listed)
    row = AuthToken.objects.get(token_key=listed[0]["start"])
    assert timedelta(days=6.9) < row.expiry - timezone.now() < timedelta(days=7)
    assert made["token"] not in row.digest

    assert api.delete(f"/api/v1/tokens/{made['id']}").status_code == 204
    assert client.get("/api/v1/me").status_code == 401
    assert api.delete(f"/api/v1/tokens/{made['id']}").status_code == 404
    assert not TokenLabel.objects.exists()


def test_a_token_lives_ninety_days_unless_asked_otherwise(api: APIClient) -> None:
    made = api.post("/api/v1/tokens", {"name": "default"}).json()
    expiry = AuthToken.objects.get(token_key=made["start"]).expiry
    assert timedelta(days=89.9) < expiry - timezone.now() < timedelta(days=90)


def test_a_stranger_cannot_revoke_a_token(world: Any, client_of: Any, mallory: Any) -> None:
    response = client_of(mallory).delete(f"/api/v1/tokens/{world.label.pk}")
    assert response.status_code == 404
    assert AuthToken.objects.filter(digest=world.label.digest).exists()


def test_tokens_are_limited_in_number_and_rate(
    api: APIClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(accounts, "MAX_TOKENS", 2)  # one is the client's own
    assert api.post("/api/v1/tokens", {"name": "a"}).status_code == 201
    full = api.post("/api/v1/tokens", {"name": "b"})
    assert full.json()["fields"] == {"name": ["You have 2 tokens; revoke one first."]}
    monkeypatch.setattr(throttles.NewTokens, "rate", "2/hour", raising=False)
    assert api.post("/api/v1/tokens", {"name": "c"}).status_code == 429
