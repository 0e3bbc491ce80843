"""How much of the artifact store a tenant fills, and whether there is room for more.

Rows know the size of what they name, so nothing is listed in the store. The planner looks at the
figure that `measure` left; uploads and submissions add up afresh.
"""

from __future__ import annotations

from typing import Any

from django.db.models import Sum

from jobs.models import Dataset, Group, PolicyVersion, Task, Tenant

MIB = 2**20


def stored_bytes(tenant: Tenant) -> int:
    """Bytes of a tenant's datasets, tokenised prompts, trajectories and versions."""
    parts: list[tuple[Any, str]] = [
        (Dataset.objects.of_tenant(tenant), "num_bytes"),
        (Task.objects.of_tenant(tenant), "prompts_bytes"),
        (Group.objects.of_tenant(tenant), "num_bytes"),
        (PolicyVersion.objects.of_tenant(tenant).filter(deleted_at=None), "num_bytes"),
    ]
    return sum(rows.aggregate(n=Sum(name))["n"] or 0 for rows, name in parts)


def measure() -> None:
    """Note for every tenant what it stores."""
    for tenant in Tenant.objects.all():
        Tenant.objects.filter(pk=tenant.pk).update(stored_bytes=stored_bytes(tenant))


def is_full(tenant: Tenant) -> bool:
    """Whether the tenant stored as much as it may when it was last measured."""
    return 0 < tenant.max_stored_mib * MIB <= tenant.stored_bytes


def no_room(tenant: Tenant, more_bytes: int) -> str:
    """Why `more_bytes` cannot be stored as well; "" if they can."""
    stored, limit = stored_bytes(tenant), tenant.max_stored_mib * MIB
    if not limit or stored + more_bytes <= limit:
        return ""
    return (
        f"{tenant.name} stores {stored / MIB:,.1f} of at most {tenant.max_stored_mib:,} MiB;"
        f" there is no room for {more_bytes / MIB:,.1f} MiB more."
        " Ask an operator to raise the quota."
    )
