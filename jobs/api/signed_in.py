"""Who sends a request, told from its headers alone, before anything of its body is read.

This decides only how much may be sent; what may be done with it is decided where it always is.
"""

from __future__ import annotations

from http.cookies import CookieError, SimpleCookie
from importlib import import_module
from typing import Any

from channels.db import database_sync_to_async
from django.conf import settings
from django.contrib.auth import SESSION_KEY
from rest_framework.exceptions import AuthenticationFailed

from .auth import TokenAuthentication


async def person_of(scope: dict[str, Any]) -> str:
    """The user's key by their token or session; "" if there is none."""
    headers = {name.lower(): value for name, value in scope["headers"]}
    return await database_sync_to_async(_person)(
        headers.get(b"authorization", b""), headers.get(b"cookie", b"")
    )


def _person(authorization: bytes, cookie: bytes) -> str:
    kind, _, token = authorization.partition(b" ")
    if kind.lower() == b"token":
        try:
            user, _ = TokenAuthentication().authenticate_credentials(token.strip())
        except AuthenticationFailed:
            return ""
        return str(user.pk)
    try:
        morsel = SimpleCookie(cookie.decode("latin-1")).get(settings.SESSION_COOKIE_NAME)
    except CookieError:
        return ""
    if morsel is None:
        return ""
    store = import_module(settings.SESSION_ENGINE).SessionStore(morsel.value)
    return str(store.get(SESSION_KEY, ""))
