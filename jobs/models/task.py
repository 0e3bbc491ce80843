"""One RL fine-tuning run of a tenant."""

import uuid

from django.conf import settings
from django.db import models

from engine.config import TaskConfig, parse_config

from .base_model import BaseModel
from .dataset import Dataset
from .tenancy import TenantQuerySet
from .tenant import Tenant


class Task(models.Model):
    """Status moves by conditional updates in `jobs.services` only."""

    class State(models.TextChoices):
        QUEUED = "queued", "Queued"
        RUNNING = "running", "Running"
        PAUSED = "paused", "Paused"
        SUCCEEDED = "succeeded", "Succeeded"
        FAILED = "failed", "Failed"
        CANCELLED = "cancelled", "Cancelled"

    ACTIVE = (State.QUEUED, State.RUNNING, State.PAUSED)
    OCCUPYING = (State.RUNNING, State.PAUSED)  # count against max_concurrent_tasks
    TERMINAL = (State.SUCCEEDED, State.FAILED, State.CANCELLED)

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    tenant = models.ForeignKey(Tenant, on_delete=models.CASCADE, related_name="tasks")
    name = models.CharField(max_length=100)
    created_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="+"
    )
    base_model = models.ForeignKey(BaseModel, on_delete=models.PROTECT, related_name="tasks")
    dataset = models.ForeignKey(Dataset, on_delete=models.PROTECT, related_name="tasks")
    config = models.JSONField(help_text="engine.config.TaskConfig")
    graders = models.JSONField(help_text="list of reward functions, see engine.rewards")
    cloned_from = models.ForeignKey("self", null=True, blank=True, on_delete=models.SET_NULL)

    state = models.CharField(max_length=10, choices=State, default=State.QUEUED)
    reason = models.CharField(max_length=500, blank=True, help_text="of the state, for people")
    phase = models.CharField(max_length=12, default="queued", help_text="what it is doing now")
    phase_since = models.DateTimeField(null=True)
    queue_position = models.PositiveIntegerField(default=0, help_text="1 is next; 0: not queued")

    pause_reason = models.CharField(
        max_length=500,
        blank=True,
        help_text="why the system paused it; blank: a person did, or it is not paused",
    )
    mismatched_steps = models.PositiveSmallIntegerField(
        default=0, help_text="steps in a row whose rollout_train_kl was over the limit"
    )

    prompts_key = models.CharField(
        max_length=300, blank=True, help_text="tokenised prompts in the artifact store"
    )
    prompts_bytes = models.PositiveBigIntegerField(default=0, help_text="of the tokenised prompts")
    num_prompts = models.PositiveIntegerField(default=0)
    num_overlong = models.PositiveIntegerField(default=0, help_text="rows skipped as too long")
    prepare_sent_at = models.DateTimeField(null=True)
    prepare_error = models.CharField(max_length=500, blank=True)
    mean_group_tokens = models.FloatField(
        default=0.0, help_text="measured cost of a group in tokens; 0: none finished yet"
    )
    priority = models.SmallIntegerField(
        default=0, help_text="among the tasks of its organisation, higher first"
    )
    virtual_time = models.FloatField(
        default=0.0, help_text="device-seconds dispatched so far, for fair shares of the tenant's"
    )
    last_start = models.FloatField(
        default=0.0, help_text="virtual time when it was last served as the one furthest back"
    )
    # Learned from what was done; 0: not known yet
    group_s = models.FloatField(default=0.0, help_text="rollout device-seconds of a group")
    pass_s = models.FloatField(default=0.0, help_text="training device-seconds of a step")
    rollout_s = models.FloatField(default=0.0, help_text="s from a step's opening until ready")

    submitted_at = models.DateTimeField(auto_now_add=True)
    started_at = models.DateTimeField(null=True)
    ended_at = models.DateTimeField(null=True)
    idempotency_key = models.CharField(
        max_length=100, blank=True, editable=False, help_text="of the request that submitted it"
    )

    tenant_path = "tenant"
    objects = TenantQuerySet.as_manager()

    class Meta:
        ordering = ["-submitted_at"]
        constraints = [
            models.UniqueConstraint(
                fields=["tenant", "idempotency_key"],
                condition=~models.Q(idempotency_key=""),
                name="submitted_once",
            )
        ]
        indexes = [models.Index(fields=["tenant", "state"]), models.Index(fields=["state"])]

    def __str__(self) -> str:
        return self.name

    @property
    def hyperparameters(self) -> TaskConfig:
        """The hyper-parameters, parsed."""
        return parse_config(self.config)

    @property
    def is_over(self) -> bool:
        return self.state in self.TERMINAL

    @property
    def stream(self) -> str:
        """Key of its event stream."""
        return f"task:{self.id}"
