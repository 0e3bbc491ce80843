"""People: who belongs to which tenant, and the API tokens they make."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from datetime import timedelta
from uuid import UUID

from django.core.exceptions import ValidationError
from django.core.validators import validate_email, validate_slug
from django.db import transaction
from knox.models import AuthToken

from engine.errors import SpecError
from jobs.models import Member, Tenant, TokenLabel, User

MAX_TOKENS = 50
DEFAULT_DAYS = 90


def add_member(slug: str, email: str, role: str) -> tuple[User, str]:
    """Put a person into a tenant; both are made if they are new.

    Returns the user and, for a new one, the generated password ("" otherwise). Raises: SpecError.
    """
    _check("tenant", slug, validate_slug)
    _check("email", email, validate_email)
    if role not in Member.Role.values:
        raise SpecError({"role": [f"Must be one of {', '.join(Member.Role.values)}."]})
    with transaction.atomic():
        tenant, _ = Tenant.objects.get_or_create(slug=slug, defaults={"name": slug.title()})
        user, is_new = User.objects.get_or_create(email=email, defaults={"username": email})
        password = secrets.token_urlsafe(12) if is_new else ""
        if is_new:
            user.set_password(password)
            user.save(update_fields=["password"])
        Member.objects.update_or_create(tenant=tenant, user=user, defaults={"role": role})
    return user, password


def _check(field: str, value: str, validate: Callable[[str], None]) -> None:
    try:
        validate(value)
    except ValidationError as error:
        raise SpecError({field: error.messages}) from error


def make_token(
    user: User, name: str, days: int = DEFAULT_DAYS
) -> tuple[AuthToken, TokenLabel, str]:
    """A new API token: its row, its label, and the token itself, which nobody can see again.

    Raises: SpecError on `name` if the user has too many.
    """
    with transaction.atomic():
        if AuthToken.objects.filter(user=user).count() >= MAX_TOKENS:
            raise SpecError({"name": [f"You have {MAX_TOKENS} tokens; revoke one first."]})
        token, secret = AuthToken.objects.create(user=user, expiry=timedelta(days=days))
        label = TokenLabel.objects.create(user=user, digest=token.digest, name=name)
    return token, label, secret


def revoke_token(user: User, label_id: UUID) -> bool:
    """End one of the user's tokens; False if they have none of that id."""
    with transaction.atomic():
        label = TokenLabel.objects.filter(pk=label_id, user=user).first()
        if label is None:
            return False
        for token in AuthToken.objects.filter(digest=label.digest):
            token.delete()
        label.delete()
    return True
