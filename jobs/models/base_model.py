"""Frozen language models that tasks share."""

from django.db import models


class BaseModel(models.Model):
    """A base model that workers of this installation serve."""

    slug = models.SlugField(unique=True, help_text="names its queues: rollout.<slug>")
    name = models.CharField(max_length=100)
    path = models.CharField(max_length=500, help_text="local Hugging Face directory, or a hub id")
    dtype = models.CharField(
        max_length=10,
        default="bfloat16",
        choices=[("bfloat16", "bfloat16"), ("float32", "float32"), ("float16", "float16")],
    )
    max_model_length = models.PositiveIntegerField(
        default=2048, help_text="tokens of prompt and completion together"
    )
    concurrency = models.JSONField(
        default=dict, blank=True, help_text="engine.manager.snapshot.Concurrency, as set last"
    )
    is_enabled = models.BooleanField(default=True)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["name"]

    def __str__(self) -> str:
        return self.name
