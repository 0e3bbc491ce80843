"""Committed policy versions: the row is the commit."""

from django.db import models

from .task import Task
from .tenancy import TenantQuerySet


class PolicyVersion(models.Model):
    """(task, number): adapter, training state and digest, immutable once committed."""

    task = models.ForeignKey(Task, on_delete=models.CASCADE, related_name="versions")
    number = models.PositiveIntegerField(help_text="0 is the untrained adapter")
    digest = models.CharField(max_length=64, help_text="sha256 over the adapter's tensors")
    key = models.CharField(max_length=300, help_text="directory in the artifact store")
    num_bytes = models.PositiveBigIntegerField(default=0)
    is_kept = models.BooleanField(default=False, help_text="exempt from clean-up")
    deleted_at = models.DateTimeField(null=True, help_text="its files are gone; the row stays")
    canary = models.JSONField(
        default=dict,
        blank=True,
        help_text="last check: engine.adapters.canary.Mismatch, `problem`, `at`; {}: none yet",
    )
    created_at = models.DateTimeField(auto_now_add=True)

    tenant_path = "task__tenant"
    objects = TenantQuerySet.as_manager()

    class Meta:
        ordering = ["number"]
        constraints = [models.UniqueConstraint(fields=["task", "number"], name="committed_once")]

    def __str__(self) -> str:
        return f"version {self.number} of {self.task_id}"
