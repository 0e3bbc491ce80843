"""Whose stages a viewer may see on the shared timeline, and as what.

Stage timing is a side channel. With TIMELINE_PRIVACY "anonymous" another tenant's span keeps its
stage and times only; with "own-only" its times only; "open" adds the tenant's name. Lane keys are
made per viewer, so two viewers cannot compare what they see.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from django.conf import settings
from django.utils.crypto import salted_hmac

from jobs.models import Member, StreamEvent, Tenant, User
from jobs.services.events import CLUSTER

IN_USE = "in-use"  # the stage of a span that may not even show its stage


@dataclass(frozen=True)
class Viewer:
    """A user and the tenants whose tasks they may see."""

    user_id: int
    tenant_ids: frozenset[int]


def viewer(user: User) -> Viewer:
    """The viewer that a signed-in user is at this moment."""
    tenants = Member.objects.filter(user=user).values_list("tenant_id", flat=True)
    return Viewer(user.pk, frozenset(tenants))


def as_seen_by(who: Viewer, event: StreamEvent) -> dict[str, Any]:
    """An event's data, reduced to what this viewer may see. Only `cluster` holds others' data."""
    if event.stream != CLUSTER:
        return event.data
    return cluster_data(who, event.data)


def cluster_data(who: Viewer, data: dict[str, Any]) -> dict[str, Any]:
    """A cluster event's data with the key of its lane; another tenant's is reduced."""
    tenant_id = int(data["tenant"]) if data.get("tenant") is not None else -1
    if tenant_id in who.tenant_ids:
        return {**data, "lane": str(data["task"]), "is_own": True}
    return {
        "lane": lane_key(who, tenant_id),
        "label": lane_label(tenant_id),
        "is_own": False,
        "stage": IN_USE if settings.TIMELINE_PRIVACY == "own-only" else data.get("stage"),
        "started_at": data.get("started_at"),
        "ended_at": data.get("ended_at"),
    }


def lane_key(who: Viewer, tenant_id: int) -> str:
    """Another tenant's lane, as opaque as the privacy setting asks."""
    if settings.TIMELINE_PRIVACY == "own-only":
        return "others"
    return salted_hmac("timeline", f"{who.user_id}:{tenant_id}").hexdigest()[:12]


def lane_label(tenant_id: int) -> str:
    """The tenant's name where the operator opened the timeline; else empty: pages number lanes."""
    if settings.TIMELINE_PRIVACY != "open":
        return ""
    return Tenant.objects.filter(pk=tenant_id).values_list("name", flat=True).first() or ""
