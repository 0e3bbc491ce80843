"""What the swim lanes and every utilisation figure are made of."""

from django.db import models

from .task import Task
from .tenancy import TenantQuerySet


class Span(models.Model):
    """A stretch of time in which a worker worked on a stage of a task."""

    class Stage(models.TextChoices):
        ROLLOUT = "rollout"
        ENVIRONMENT = "environment"
        TRAINING = "training"

    task = models.ForeignKey(Task, on_delete=models.CASCADE, related_name="spans")
    stage = models.CharField(max_length=12, choices=Stage)
    worker = models.CharField(max_length=100, help_text="the worker's name")
    step = models.PositiveIntegerField()
    group = models.PositiveIntegerField(null=True, help_text="index of the group; none: whole step")
    started_at = models.DateTimeField()
    ended_at = models.DateTimeField(null=True, help_text="none: still going on")
    tokens = models.PositiveIntegerField(default=0)

    tenant_path = "task__tenant"
    objects = TenantQuerySet.as_manager()

    class Meta:
        ordering = ["started_at"]
        indexes = [models.Index(fields=["task", "started_at"]), models.Index(fields=["started_at"])]

    def __str__(self) -> str:
        return f"{self.stage} of {self.task_id} step {self.step}"
