"""Credentials that a tenant's reward functions and tools may send."""

import uuid

from django.conf import settings
from django.db import models

from .tenancy import TenantQuerySet
from .tenant import Tenant


class Secret(models.Model):
    """A credential for one host. Its value can be replaced and used, and never read back.

    `sealed` is the value as `jobs.services.secrets` encrypts it; nothing else may read the column.
    """

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    tenant = models.ForeignKey(Tenant, on_delete=models.CASCADE, related_name="secrets")
    name = models.CharField(max_length=50, help_text="by which reward functions and tools ask")
    host = models.CharField(
        max_length=260, help_text="that it is sent to: as in a URL, with the port where not 443"
    )
    sealed = models.TextField(editable=False, help_text="the value, encrypted")
    created_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="+"
    )
    created_at = models.DateTimeField(auto_now_add=True)
    changed_at = models.DateTimeField(auto_now_add=True, help_text="host or value, last")
    last_used_at = models.DateTimeField(
        null=True, help_text="given to a worker for a task that names it, to the minute"
    )

    tenant_path = "tenant"
    objects = TenantQuerySet.as_manager()

    class Meta:
        ordering = ["name"]
        constraints = [models.UniqueConstraint(fields=["tenant", "name"], name="one_secret_a_name")]

    def __str__(self) -> str:
        return f"{self.name} for {self.host}"
