"""Streams of events that pages replay from a cursor."""

import uuid

from django.db import models


class StreamHead(models.Model):
    """How far a stream goes. `epoch` changes when its history is rewritten."""

    key = models.CharField(
        max_length=60, primary_key=True, help_text="task:<id>, tenant:<id>, cluster"
    )
    epoch = models.UUIDField(default=uuid.uuid4)
    last_seq = models.PositiveBigIntegerField(default=0)

    def __str__(self) -> str:
        return f"{self.key} at {self.last_seq}"


class StreamEvent(models.Model):
    """One event; `data` holds absolute values, so applying it twice changes nothing."""

    stream = models.CharField(max_length=60)
    seq = models.PositiveBigIntegerField()
    kind = models.CharField(max_length=20)
    data = models.JSONField()
    at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["stream", "seq"]
        constraints = [
            models.UniqueConstraint(fields=["stream", "seq"], name="events_are_numbered")
        ]

    def __str__(self) -> str:
        return f"{self.stream} {self.seq} {self.kind}"
