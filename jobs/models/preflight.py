"""Checks of tasks before they are submitted."""

import uuid

from django.conf import settings
from django.db import models

from engine.config import TaskConfig, parse_config

from .base_model import BaseModel
from .dataset import Dataset
from .tenancy import TenantQuerySet
from .tenant import Tenant


class Preflight(models.Model):
    """One check of a task as it would be submitted, on its way to a report."""

    class State(models.TextChoices):
        QUEUED = "queued", "Queued"
        RUNNING = "running", "Running"
        DONE = "done", "Done"
        FAILED = "failed", "Failed"

    UNDER_WAY = (State.QUEUED, State.RUNNING)

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    tenant = models.ForeignKey(Tenant, on_delete=models.CASCADE, related_name="preflights")
    created_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="+"
    )
    name = models.CharField(max_length=100, help_text="of the task that it would be")
    base_model = models.ForeignKey(BaseModel, on_delete=models.CASCADE, related_name="+")
    dataset = models.ForeignKey(Dataset, on_delete=models.CASCADE, related_name="+")
    config = models.JSONField(help_text="engine.config.TaskConfig")
    graders = models.JSONField(help_text="list of reward functions, see engine.rewards")

    state = models.CharField(max_length=10, choices=State, default=State.QUEUED)
    doing = models.CharField(max_length=100, blank=True, help_text="what it does now, for people")
    share_done = models.FloatField(default=0.0, help_text="0 to 1")
    report = models.JSONField(default=dict, help_text="engine.preflight.Report; {}: none yet")
    error = models.CharField(max_length=500, blank=True, help_text="why it failed")
    beat_at = models.DateTimeField(null=True, help_text="last sign of the worker that runs it")
    created_at = models.DateTimeField(auto_now_add=True)
    started_at = models.DateTimeField(null=True)
    ended_at = models.DateTimeField(null=True)

    tenant_path = "tenant"
    objects = TenantQuerySet.as_manager()

    class Meta:
        ordering = ["-created_at"]
        indexes = [models.Index(fields=["tenant", "-created_at"]), models.Index(fields=["state"])]

    def __str__(self) -> str:
        return f"check of {self.name}: {self.state}"

    @property
    def hyperparameters(self) -> TaskConfig:
        """The hyper-parameters, parsed."""
        return parse_config(self.config)

    @property
    def is_over(self) -> bool:
        return self.state not in self.UNDER_WAY
