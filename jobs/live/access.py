"""Who is on a socket, and which streams they may read.

Group names are built from rows found among the viewer's own tenants, never from what a client
sent; an unknown stream and another tenant's are answered alike.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

from django.conf import settings
from django.contrib import auth
from django.contrib.sessions.backends.db import SessionStore
from django.http import HttpRequest, parse_cookie
from django.utils.http import is_same_domain
from rest_framework.exceptions import AuthenticationFailed

from jobs.api.auth import TokenAuthentication
from jobs.models import Member, Task, User
from jobs.services.events import CLUSTER

Scope = dict[str, Any]
Identify = Callable[[Scope], User | None]


def header(scope: Scope, name: bytes) -> str:
    """A request header of the handshake; empty if absent."""
    values = [value for key, value in scope["headers"] if key == name]
    return values[0].decode("latin-1") if len(values) == 1 else ""


def user_of_cookie(scope: Scope) -> User | None:
    """The user signed in by the session cookie, read afresh from the database."""
    request = HttpRequest()
    key = parse_cookie(header(scope, b"cookie")).get(settings.SESSION_COOKIE_NAME)
    request.session = SessionStore(key)
    user = auth.get_user(request)
    return user if isinstance(user, User) else None


def user_of_token(scope: Scope) -> User | None:
    """The user of `Authorization: Token …`; cookies are ignored."""
    scheme, _, token = header(scope, b"authorization").partition(" ")
    if scheme.lower() != "token":
        return None
    try:
        found = TokenAuthentication().authenticate_credentials(token.strip().encode("latin-1"))
    except AuthenticationFailed:
        return None
    return found[0]


def is_trusted_origin(scope: Scope) -> bool:
    """Whether the page that opened the socket is one of ours; no Origin header is not."""
    origin = header(scope, b"origin")
    if origin in settings.CSRF_TRUSTED_ORIGINS:
        return True
    found = urlsplit(origin)
    return any(
        pattern.scheme == found.scheme and is_same_domain(found.netloc, pattern.netloc[1:])
        for pattern in map(urlsplit, settings.CSRF_TRUSTED_ORIGINS)
        if pattern.netloc.startswith("*.")
    )


def find_stream(user: User, name: str) -> str | None:
    """The stream's canonical name if this user may read it, else None."""
    kind, _, key = name.partition(":")
    if name == CLUSTER:
        is_member = Member.objects.filter(user=user).exists()
        return CLUSTER if is_member or user.is_staff else None
    if kind == "task":
        task = Task.objects.for_user(user).filter(pk=_uuid(key)).first()
        return task.stream if task else None
    if kind == "tenant" and key.isascii() and key.isdigit() and len(key) < 19:
        member = Member.objects.filter(tenant_id=int(key), user=user).first()
        return f"tenant:{member.tenant_id}" if member else None
    return None


def _uuid(text: str) -> uuid.UUID | None:
    try:
        return uuid.UUID(text)
    except ValueError:
        return None


def user_group(user_id: int) -> str:
    """The channel-layer group of all sockets of a user."""
    return f"user.{user_id}"
