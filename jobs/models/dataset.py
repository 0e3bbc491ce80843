"""Prompts with their reference answers, immutable once uploaded."""

import uuid

from django.conf import settings
from django.db import models

from .tenancy import TenantQuerySet
from .tenant import Tenant


class Dataset(models.Model):
    """Checked rows in the artifact store: JSON Lines, one object a line.

    Each row has `messages` (chat, last one of the user) and any other columns, which reward
    functions see by name.
    """

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    tenant = models.ForeignKey(Tenant, on_delete=models.CASCADE, related_name="datasets")
    name = models.CharField(max_length=100)
    created_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="+"
    )
    num_rows = models.PositiveIntegerField()
    num_bytes = models.PositiveBigIntegerField()
    columns = models.JSONField(
        default=list, help_text="names of the columns, in order of appearance"
    )
    sha256 = models.CharField(max_length=64)
    key = models.CharField(max_length=300, help_text="in the artifact store")
    created_at = models.DateTimeField(auto_now_add=True)

    tenant_path = "tenant"
    objects = TenantQuerySet.as_manager()

    class Meta:
        ordering = ["-created_at"]
        constraints = [
            models.UniqueConstraint(fields=["tenant", "name"], name="one_dataset_a_name")
        ]

    def __str__(self) -> str:
        return self.name
