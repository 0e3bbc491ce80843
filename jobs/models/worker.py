"""Worker incarnations and their heartbeats."""

import uuid

from django.db import models


class Worker(models.Model):
    """One life of one worker process; it beats every 2 s."""

    class Kind(models.TextChoices):
        ROLLOUT = "rollout"
        ENVIRONMENT = "environment"
        TRAINING = "training"
        PLANNING = "planning"

    incarnation = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    name = models.CharField(max_length=100, help_text="stable over restarts")
    kind = models.CharField(max_length=12, choices=Kind)
    host = models.CharField(max_length=100)
    pid = models.PositiveIntegerField()
    base_models = models.JSONField(default=list, help_text="slugs of the base models it serves")
    slots = models.PositiveIntegerField(default=0, help_text="sequences its engine holds at once")
    stats = models.JSONField(default=dict, help_text="engine figures at the last beat")
    started_at = models.DateTimeField(auto_now_add=True)
    last_beat_at = models.DateTimeField()
    stopped_at = models.DateTimeField(null=True, help_text="left in good order")

    class Meta:
        ordering = ["name", "-started_at"]
        indexes = [models.Index(fields=["stopped_at", "last_beat_at"])]

    def __str__(self) -> str:
        return f"{self.name} ({self.incarnation})"
