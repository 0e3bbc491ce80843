"""Secrets are written, used and never read back."""

from __future__ import annotations

import logging
from datetime import timedelta
from typing import Any

import pytest
from django.core.exceptions import PermissionDenied
from django.utils import timezone

from engine.errors import SpecError
from jobs.models import Member, Secret
from jobs.services import secrets
from jobs.services.secrets import (
    change_secret,
    delete_secret,
    named_secrets,
    save_secret,
    secrets_of,
)

pytestmark = pytest.mark.django_db
VALUE = "sk-very-private-0123"


@pytest.fixture
def secret(acme: Any, alice: Any) -> Secret:
    return save_secret(
        tenant=acme, user=alice, name="judge", host="API.example.com", value=f" {VALUE}\n"
    )


def test_a_value_comes_back_for_workers_only_and_lies_encrypted(secret: Secret, acme: Any) -> None:
    stored = Secret.objects.values().get()
    assert VALUE not in repr(stored)
    assert stored["host"] == "api.example.com"
    found = secrets_of(acme.pk)
    assert {name: (one.host, one.value) for name, one in found.items()} == {
        "judge": ("api.example.com", VALUE)
    }
    assert VALUE not in repr(found)
    assert VALUE not in f"{secret} {secret!r} {vars(secret)}"


def test_each_tenant_has_its_own(secret: Secret, umbrella: Any, mallory: Any) -> None:
    save_secret(tenant=umbrella, user=mallory, name="judge", host="evil.example", value="x")
    assert secrets_of(umbrella.pk)["judge"].value == "x"
    assert secrets_of(secret.tenant_id, {"other"}) == {}


@pytest.mark.parametrize("change", ["host", "tenant"])
def test_a_value_does_not_open_in_another_row(
    secret: Secret, umbrella: Any, change: str, caplog: pytest.LogCaptureFixture
) -> None:
    moved = {"host": {"host": "evil.example"}, "tenant": {"tenant": umbrella}}[change]
    Secret.objects.update(**moved)
    assert secrets_of(Secret.objects.get().tenant_id) == {}
    assert "sealed for another tenant or host" in caplog.text
    assert VALUE not in caplog.text


def test_another_key_opens_nothing_unless_the_old_one_is_a_fallback(
    secret: Secret, acme: Any, settings: Any
) -> None:
    old, settings.SECRET_KEY = settings.SECRET_KEY, "another key of fifty characters or thereabouts"
    assert secrets_of(acme.pk) == {}
    settings.SECRET_KEY_FALLBACKS = [old]
    assert secrets_of(acme.pk)["judge"].value == VALUE


def test_the_host_changes_only_together_with_the_value(secret: Secret, bob: Any) -> None:
    with pytest.raises(SpecError) as caught:
        change_secret(secret, bob, host="evil.example", value=None)
    assert set(caught.value.fields) == {"value"}
    assert secrets_of(secret.tenant_id)["judge"].host == "api.example.com"
    change_secret(secret, bob, host="other.example:8443", value="new")
    found = secrets_of(secret.tenant_id)["judge"]
    assert (found.host, found.value) == ("other.example:8443", "new")
    change_secret(secret, bob, value="newer")
    assert secrets_of(secret.tenant_id)["judge"].value == "newer"


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("name", " ", "Must not be empty"),
        ("name", 7, "Must be text"),
        ("name", "judge", "There is one of this name"),
        ("host", "", "Must be the host"),
        ("host", "user:pw@a.example", "user name or password"),
        ("host", "a b", "white space"),
        ("host", "127.1", "neither a host name nor an address"),
        ("value", "", "not empty"),
        ("value", 12345678, "Must be text"),
        ("value", "a\nb", "printable ASCII"),
        ("value", "x" * 8_193, "at most 8,192"),
    ],
)
def test_what_cannot_be_used_is_refused_without_repeating_a_value(
    secret: Secret, acme: Any, alice: Any, field: str, value: Any, message: str
) -> None:
    fields = {"name": "other", "host": "a.example", "value": VALUE, field: value}
    with pytest.raises(SpecError) as caught:
        save_secret(tenant=acme, user=alice, **fields)
    assert set(caught.value.fields) == {field}
    assert message in caught.value.fields[field][0]
    assert VALUE not in str(caught.value)
    assert "12345678" not in str(caught.value)
    assert Secret.objects.count() == 1


def test_viewers_and_strangers_write_nothing(
    secret: Secret, acme: Any, make_user: Any, mallory: Any
) -> None:
    vera = make_user("vera", acme, Member.Role.VIEWER)
    for user in (vera, mallory):
        with pytest.raises(PermissionDenied):
            save_secret(tenant=acme, user=user, name="x", host="a.example", value="y")
        with pytest.raises(PermissionDenied):
            change_secret(secret, user, host="evil.example", value="y")
        with pytest.raises(PermissionDenied):
            delete_secret(secret, user)
    assert secrets_of(acme.pk)["judge"].value == VALUE


def test_deleting_one_names_the_tasks_that_will_miss_it(
    secret: Secret, make_task: Any, bob: Any
) -> None:
    def with_tool(name: str, secret_name: str, **fields: Any) -> Any:
        task = make_task(name, **fields)
        tool = {"type": "http", "name": "t", "secret": secret_name}
        task.config = {**task.config, "environment": {"type": "tool_use", "tools": [tool]}}
        task.save()
        return task

    judged = make_task("judged")
    judged.graders = [{"type": "multi", "graders": {"a": {"type": "remote", "secret": "judge"}}}]
    judged.save()
    using = with_tool("calls", "judge")
    with_tool("other", "another")
    with_tool("over", "judge", state="failed")
    assert {task.pk for task in delete_secret(secret, bob)} == {judged.pk, using.pk}
    assert not Secret.objects.exists()


def test_names_are_found_however_deep() -> None:
    spec = [{"secret": "a"}, {"graders": {"x": {"secret": "b"}, "y": {"secret": ""}}}]
    assert named_secrets(spec, {"secret": 7, "n": [{"secret": "c"}]}) == {"a", "b", "c"}


def test_a_use_is_noted_once_a_minute(secret: Secret, acme: Any) -> None:
    secrets_of(acme.pk, {"judge"})
    first = Secret.objects.get().last_used_at
    assert first is not None
    secrets_of(acme.pk, {"judge"})
    assert Secret.objects.get().last_used_at == first
    Secret.objects.update(last_used_at=timezone.now() - timedelta(seconds=61))
    secrets_of(acme.pk, {"judge"})
    assert Secret.objects.get().last_used_at > first


def test_nothing_of_a_value_is_logged(
    acme: Any, alice: Any, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    secret = save_secret(tenant=acme, user=alice, name="k", host="a.example", value=VALUE)
    secrets_of(acme.pk)
    delete_secret(secret, alice)
    assert VALUE not in caplog.text


def test_a_tenant_has_a_bounded_number(
    secret: Secret, acme: Any, alice: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(secrets, "MAX_SECRETS", 1)
    with pytest.raises(SpecError, match="delete one first"):
        save_secret(tenant=acme, user=alice, name="more", host="a.example", value="x")
