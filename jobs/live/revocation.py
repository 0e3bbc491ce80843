"""Makes sockets look again at once when a login or a membership ends.

A socket looks every minute anyway; these rings only shorten the wait, so one may be lost.
"""

from __future__ import annotations

from typing import Any

from django.contrib.auth import SESSION_KEY
from django.contrib.sessions.models import Session
from django.db import transaction
from django.db.models.signals import post_delete, post_save
from knox.models import AuthToken

from jobs.live import doorbell
from jobs.models import Member, User

from .access import user_group


def recheck(user_id: int) -> None:
    """Ask every socket of a user to check login and memberships once this transaction commits."""
    transaction.on_commit(lambda: doorbell.ring_group(user_group(user_id), {"type": "recheck"}))


def _membership_changed(instance: Member, **_: Any) -> None:
    recheck(instance.user_id)


def _user_changed(instance: User, **_: Any) -> None:
    recheck(instance.pk)


def _session_ended(instance: Session, **_: Any) -> None:
    """Logging out deletes the session; the signal of that name is sent before it is gone."""
    if user_id := instance.get_decoded().get(SESSION_KEY):
        recheck(int(user_id))


def connect() -> None:
    """Called once, when the app is ready."""
    post_save.connect(_membership_changed, sender=Member, dispatch_uid="recheck-member")
    post_delete.connect(_membership_changed, sender=Member, dispatch_uid="recheck-left")
    post_save.connect(_user_changed, sender=User, dispatch_uid="recheck-user")
    post_delete.connect(_membership_changed, sender=AuthToken, dispatch_uid="recheck-token")
    post_delete.connect(_session_ended, sender=Session, dispatch_uid="recheck-session")
