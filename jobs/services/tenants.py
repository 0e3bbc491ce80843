"""Who may act for a tenant, and what operators set for one."""

from __future__ import annotations

import logging
from typing import Any

from django.core.exceptions import PermissionDenied
from django.db import transaction

from engine.errors import SpecError
from engine.parameters import shown
from jobs.models import Member, Tenant, User
from jobs.services.planner_bell import ring_planner

log = logging.getLogger(__name__)

WRITERS = (Member.Role.OWNER, Member.Role.MEMBER)
QUOTAS = (
    "weight",
    "max_concurrent_tasks",
    "tokens_per_day",
    "max_lora_rank",
    "max_step_tokens",
    "max_stored_mib",
    "is_suspended",
)


def require_writer(user: User, tenant: Tenant) -> None:
    """Raises: PermissionDenied unless the user is an owner or a member of the tenant."""
    role = Member.objects.filter(user=user, tenant=tenant).values_list("role", flat=True).first()
    if role not in WRITERS:
        raise PermissionDenied(
            f"Your role in {tenant.name} is {role or 'none'}; owners and members may do this."
            " Ask an owner of the tenant."
        )


def choose_tenant(user: User, slug: object = None) -> Tenant:
    """The user's tenant of that slug; their only one where none is given.

    Raises: SpecError on `tenant`.
    """
    tenants = Tenant.objects.for_user(user)
    if slug is not None:
        can_be = isinstance(slug, str) and "\0" not in slug  # which PostgreSQL cannot even compare
        found = tenants.filter(slug=slug).first() if can_be else None
        if found is None:
            raise SpecError({"tenant": [f"You are in no tenant {shown(slug)}."]})
        return found
    first_two = list(tenants[:2])
    if len(first_two) == 1:
        return first_two[0]
    if not first_two:
        raise SpecError({"tenant": ["You are in no tenant. Ask an administrator to add you."]})
    raise SpecError({"tenant": ["Is required: you are in several tenants."]})


def set_quotas(tenant: Tenant, values: dict[str, Any], *, by: User) -> Tenant:
    """Change quotas of a tenant (names in QUOTAS, values already checked)."""
    assert set(values) <= set(QUOTAS)
    if not values:
        return tenant
    with transaction.atomic():
        Tenant.objects.filter(pk=tenant.pk).update(**values)
        transaction.on_commit(ring_planner)
    log.info("quotas of tenant %s set to %s by user %s", tenant.slug, values, by.pk)
    tenant.refresh_from_db()
    return tenant
