"""What strangers cannot do to the doors: ask without end, or use those we do not offer."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client

from jobs.api.throttles import ByUser
from jobs.models import User

pytestmark = pytest.mark.django_db


def test_pages_are_counted_by_user_together_with_the_api(
    browser_of: Any, alice: Any, bob: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(ByUser.THROTTLE_RATES, "user", "3/day")
    browser = browser_of(alice)
    answers = [browser.get(path) for path in ("/tasks/", "/api/v1/me", "/datasets/", "/tasks/")]
    assert [answer.status_code for answer in answers] == [200, 200, 200, 429]
    assert 0 <= int(answers[-1].headers["Retry-After"]) <= 86_400
    assert "Wait a minute" in answers[-1].content.decode()
    assert browser_of(bob).get("/tasks/").status_code == 200
    assert browser.get("/health/live").status_code == 200


def test_writing_through_pages_has_the_lower_limit(
    browser_of: Any, alice: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(ByUser.THROTTLE_RATES, "writes", "1/day")
    browser = browser_of(alice)
    codes = [browser.post("/account/theme/", {"theme": "dark"}).status_code for _ in range(2)]
    assert codes == [302, 429]
    assert browser.get("/tasks/").status_code == 200


def test_operators_sign_in_where_attempts_are_counted(
    client: Client, alice: Any, redis: Any
) -> None:
    User.objects.filter(pk=alice.pk).update(is_staff=True, is_superuser=True)
    sent = {"username": "alice", "password": "correct horse"}
    answer = client.post("/ops/admin/login/?next=/ops/admin/", sent)
    assert answer.status_code == 302
    assert answer.headers["Location"].startswith("/accounts/login/?next=")
    assert client.get("/ops/admin/").status_code == 302  # still nobody
    guesses = [
        client.post("/accounts/login/", {"login": alice.email, "password": f"guess {n}"})
        for n in range(7)
    ]
    assert "Too many failed login attempts" in guesses[-1].content.decode()


def test_the_operators_admin_is_closed_to_members(browser_of: Any, alice: Any) -> None:
    assert browser_of(alice).get("/ops/admin/login/").status_code == 403


@pytest.mark.parametrize(
    "path",
    ["email/", "signup/", "confirm-email/", "confirm-email/x/", "login/code/confirm/", "nope/"],
)
def test_pages_of_the_account_library_that_we_do_not_offer_are_not_there(
    browser_of: Any, alice: Any, client: Client, redis: Any, path: str
) -> None:
    assert browser_of(alice).get(f"/accounts/{path}").status_code == 404
    assert client.post(f"/accounts/{path}", {"email": "evil@example.com"}).status_code == 404


@pytest.mark.parametrize("path", ["password/change/", "logout/", "password/reset/"])
def test_those_that_we_offer_are(browser_of: Any, alice: Any, path: str) -> None:
    assert browser_of(alice).get(f"/accounts/{path}").status_code == 200
