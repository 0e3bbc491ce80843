"""Tenants' secrets: written by people, read by workers, shown to nobody.

A value is stored encrypted under a key that is derived from SECRET_KEY, together with the tenant
and the host that it is for: in another row, or with another host, it does not open. This protects
copies of the database, not against who has SECRET_KEY as well, and not against a worker's memory.
Where SECRET_KEY changes, put the old one into SECRET_KEY_FALLBACKS, or save the secrets again.
"""

from __future__ import annotations

import base64
import json
import logging
from collections.abc import Iterable, Iterator, Mapping
from datetime import timedelta
from typing import Any

from cryptography.fernet import Fernet, InvalidToken, MultiFernet
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from django.conf import settings
from django.db import IntegrityError, transaction
from django.utils import timezone

from engine.errors import MarlaasError, SpecError
from engine.outbound import UrlRefused, read_url
from engine.parameters import text
from engine.rewards import Secret as OpenSecret
from jobs.models import Secret, Task, Tenant, User
from jobs.services.tenants import require_writer

MAX_SECRETS = 100  # of a tenant
MAX_NAME_CHARACTERS = 50
MAX_HOST_CHARACTERS = 260
MAX_VALUE_CHARACTERS = 8_192  # a JSON web token of a few thousand fits
USE_NOTED_S = 60  # a use is noted once a minute, not for every trajectory

log = logging.getLogger(__name__)


def save_secret(*, tenant: Tenant, user: User, name: Any, host: Any, value: Any) -> Secret:
    """A new secret. Raises: PermissionDenied; SpecError with every wrong field."""
    require_writer(user, tenant)
    fields, errors = _checked(name=name, host=host, value=value)
    if "name" in fields and Secret.objects.filter(tenant=tenant, name=fields["name"]).exists():
        errors["name"] = ["There is one of this name: change that, or delete it first."]
    if Secret.objects.filter(tenant=tenant).count() >= MAX_SECRETS:
        errors["name"] = [f"{tenant.name} has {MAX_SECRETS} secrets already; delete one first."]
    if errors:
        raise SpecError(errors)
    try:
        with transaction.atomic():
            return Secret.objects.create(
                tenant=tenant,
                created_by=user,
                name=fields["name"],
                host=fields["host"],
                sealed=_sealed(tenant.pk, fields["host"], fields["value"]),
            )
    except IntegrityError:
        raise SpecError({"name": ["Somebody else has just saved one of this name."]}) from None


def change_secret(secret: Secret, user: User, *, value: Any, host: Any = None) -> Secret:
    """Give a secret another value, and another host if there is one.

    The host never changes alone: that would send a value to where its owner did not save it for.
    Raises: PermissionDenied; SpecError with every wrong field.
    """
    require_writer(user, secret.tenant)
    fields, errors = _checked(host=secret.host if host is None else host, value=value)
    if errors:
        raise SpecError(errors)
    sealed = _sealed(secret.tenant_id, fields["host"], fields["value"])
    Secret.objects.filter(pk=secret.pk).update(
        host=fields["host"], sealed=sealed, changed_at=timezone.now()
    )
    secret.refresh_from_db()
    return secret


def delete_secret(secret: Secret, user: User) -> list[Task]:
    """Delete it at once; returns the tasks that are not over and will miss it.

    A worker that has it goes on with it for a minute at most. Raises: PermissionDenied.
    """
    require_writer(user, secret.tenant)
    using = tasks_using(secret)
    secret.delete()
    return using


def tasks_using(secret: Secret) -> list[Task]:
    """The tenant's tasks that are not over and name it."""
    tasks = Task.objects.filter(tenant=secret.tenant_id, state__in=Task.ACTIVE)
    return [task for task in tasks if secret.name in named_secrets(task.graders, task.config)]


def named_secrets(*specs: Any) -> set[str]:
    """Names of the secrets that reward functions or tools ask for, from their plain specs."""
    return {name for spec in specs for name in _names_in(spec)}


def _names_in(spec: Any) -> Iterator[str]:
    if isinstance(spec, Mapping):
        for key, value in spec.items():
            if key == "secret" and isinstance(value, str) and value:
                yield value
            else:
                yield from _names_in(value)
    elif isinstance(spec, (list, tuple)):
        for value in spec:
            yield from _names_in(value)


def missing_secrets(tenant: Tenant, names: Iterable[str]) -> set[str]:
    """Those of the names that the tenant has no secret of."""
    wanted = set(names)
    if not wanted:
        return set()
    return wanted - set(
        Secret.objects.filter(tenant=tenant, name__in=wanted).values_list("name", flat=True)
    )


def secrets_of(tenant: Any, names: Iterable[str] | None = None) -> dict[str, OpenSecret]:
    """A tenant's secrets by name, opened, for a worker; names: only these. Notes their use.

    tenant: its key. One that does not open is left out, and the log says so.
    """
    rows = Secret.objects.filter(tenant=tenant)
    if names is not None:
        rows = rows.filter(name__in=list(names))
    found = {}
    for row in rows:
        try:
            found[row.name] = OpenSecret(row.name, row.host, _opened(row))
        except SealError as error:
            log.warning("%s", error)
    before = timezone.now() - timedelta(seconds=USE_NOTED_S)
    used = Secret.objects.filter(tenant=tenant, name__in=list(found))
    if any(row.last_used_at is None or row.last_used_at < before for row in rows):
        used.update(last_used_at=timezone.now())
    return found


class SealError(MarlaasError):
    """A stored value that does not open."""


def _opened(row: Secret) -> str:
    try:
        tenant, host, value = json.loads(_cipher().decrypt(row.sealed.encode()))
    except InvalidToken:
        raise SealError(
            f"secret {row.pk} does not open: SECRET_KEY is another than when it was saved"
        ) from None
    if (tenant, host) != (row.tenant_id, row.host):
        raise SealError(f"secret {row.pk} was sealed for another tenant or host")
    return str(value)


def _sealed(tenant: int, host: str, value: str) -> str:
    return _cipher().encrypt(json.dumps([tenant, host, value]).encode()).decode()


def _cipher() -> MultiFernet:
    """Encrypts under SECRET_KEY; decrypts under its predecessors, too."""
    keys = [str(key) for key in (settings.SECRET_KEY, *settings.SECRET_KEY_FALLBACKS)]
    return MultiFernet([Fernet(_derived(key)) for key in keys])


def _derived(key: str) -> bytes:
    derivation = HKDF(algorithm=SHA256(), length=32, salt=None, info=b"marlaas tenants' secrets")
    return base64.urlsafe_b64encode(derivation.derive(key.encode()))


def _checked(**values: Any) -> tuple[dict[str, str], dict[str, list[str]]]:
    """Checked fields, and what is wrong with the others. No message repeats a value."""
    checks = {"name": _name, "host": _host, "value": _value}
    found, errors = {}, {}
    for field, value in values.items():
        try:
            found[field] = checks[field](value)
        except ValueError as error:
            errors[field] = [str(error)]
    return found, errors


def _name(value: Any) -> str:
    name = text(value, MAX_NAME_CHARACTERS).strip()
    if not name:
        raise ValueError("Must not be empty.")
    return name


def _host(value: Any) -> str:
    """As in a URL; a whole https URL is taken for its host."""
    host = text(value, MAX_HOST_CHARACTERS).strip().lower()
    if not host:
        raise ValueError("Must be the host that it is sent to, such as api.example.com.")
    try:
        target = read_url(host if "//" in host else f"https://{host}/")
    except UrlRefused as error:
        raise ValueError(f"Must be a host such as api.example.com. {error}") from None
    return target.netloc


def _value(value: Any) -> str:
    if not isinstance(value, str) or not value.strip():
        raise ValueError("Must be text, and not empty.")
    value = value.strip()
    if len(value) > MAX_VALUE_CHARACTERS:
        raise ValueError(f"Must have at most {MAX_VALUE_CHARACTERS:,} characters.")
    if not (value.isascii() and value.isprintable()):
        raise ValueError(
            "Must be printable ASCII in one line: it is sent in a header. Encode others as base64."
        )
    return value
