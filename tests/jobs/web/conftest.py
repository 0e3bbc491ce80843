"""Browsers of three people, without scripts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.test import Client


@pytest.fixture
def browser_of(redis: Any) -> Callable[[Any], Client]:
    """A signed-in client of a user."""

    def sign_in(user: Any) -> Client:
        client = Client()
        client.force_login(user)
        return client

    return sign_in
