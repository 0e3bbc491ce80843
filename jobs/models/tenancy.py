"""Whose rows are whose: the one place that turns a user into what they may see.

Pages, endpoints and sockets start from `Model.objects.for_user(user)`; a row of another tenant is
then as absent as one that never was. Each model names the way from it to its tenant in
`tenant_path`, so a model without one cannot be asked.
"""

from __future__ import annotations

from typing import Any, Self

from django.db import models


class TenantQuerySet(models.QuerySet[Any]):
    """Rows that belong to a tenant."""

    def for_user(self, user: Any) -> Self:
        """Rows of the tenants that a user is a member of; staff have no more here than others."""
        if not user.is_authenticated:
            return self.none()
        return self.filter(**{self._path("members__user"): user})

    def of_tenant(self, tenant: Any) -> Self:
        """Rows of one tenant."""
        return self.filter(**{self._path("pk"): tenant.pk})

    def _path(self, end: str) -> str:
        start: str = self.model.tenant_path
        return f"{start}__{end}" if start else end
