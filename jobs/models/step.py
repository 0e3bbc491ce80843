"""Steps of a task and the groups that they train on."""

import uuid

from django.db import models

from .task import Task
from .tenancy import TenantQuerySet


class Step(models.Model):
    """The work that turns version `number` into `number` + 1.

    open: groups are generated and graded. ready: all are finished; waits in the FIFO of the
    trainer. training: a pass is dispatched under `fence`. committed: the version exists. dropped:
    the task ended before.
    """

    class State(models.TextChoices):
        OPEN = "open"
        READY = "ready"
        TRAINING = "training"
        COMMITTED = "committed"
        DROPPED = "dropped"

    LIVE = (State.OPEN, State.READY, State.TRAINING)

    task = models.ForeignKey(Task, on_delete=models.CASCADE, related_name="steps")
    number = models.PositiveIntegerField()
    policy_version = models.PositiveIntegerField(
        null=True,
        help_text="that generates its groups, older than `number`; null: that of `number`",
    )
    state = models.CharField(max_length=10, choices=State, default=State.OPEN)
    ready_order = models.PositiveBigIntegerField(
        default=0, help_text="place in the FIFO; 0 while open"
    )
    fence = models.PositiveIntegerField(default=0, help_text="of the last training dispatch")
    holder = models.CharField(max_length=36, blank=True, help_text="worker incarnation of the pass")
    errors = models.PositiveIntegerField(default=0, help_text="training passes that raised")
    last_error = models.CharField(max_length=500, blank=True)
    opened_at = models.DateTimeField(auto_now_add=True)
    ready_at = models.DateTimeField(null=True)
    dispatched_at = models.DateTimeField(null=True)
    training_started_at = models.DateTimeField(null=True)
    ended_at = models.DateTimeField(null=True)
    num_late = models.PositiveIntegerField(default=0, help_text="results of old attempts, dropped")
    num_refused = models.PositiveIntegerField(
        default=0, help_text="trajectories of another version, refused"
    )
    device_s = models.FloatField(
        default=0.0, help_text="rollout device-seconds of its finished groups"
    )
    charged_s = models.FloatField(
        default=0.0, help_text="device-seconds that its tenant paid for it and that are settled"
    )
    metrics = models.JSONField(default=dict, help_text="engine.training.trainer's, at commit")

    tenant_path = "task__tenant"
    objects = TenantQuerySet.as_manager()

    class Meta:
        ordering = ["number"]
        constraints = [
            models.UniqueConstraint(fields=["task", "number"], name="steps_are_numbered"),
        ]
        indexes = [models.Index(fields=["state", "ready_order"])]

    def __str__(self) -> str:
        return f"step {self.number} of {self.task_id}"

    @property
    def generated_by(self) -> int:
        """Number of the policy version that generates its groups."""
        return self.number if self.policy_version is None else self.policy_version


class Group(models.Model):
    """The trajectories of one prompt; their content is in the artifact store under `key`."""

    class State(models.TextChoices):
        WAITING = "waiting"
        DISPATCHED = "dispatched"
        FINISHED = "finished"
        DROPPED = "dropped"

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    step = models.ForeignKey(Step, on_delete=models.CASCADE, related_name="groups")
    index = models.PositiveIntegerField(help_text="0 … batch_size - 1")
    prompt_index = models.PositiveIntegerField(help_text="row of the tokenised prompts")
    state = models.CharField(max_length=10, choices=State, default=State.WAITING)
    attempt = models.PositiveIntegerField(default=0)
    errors = models.PositiveIntegerField(default=0)
    last_error = models.CharField(max_length=500, blank=True)
    dispatched_at = models.DateTimeField(null=True)
    finished_at = models.DateTimeField(null=True)
    key = models.CharField(max_length=300, blank=True)
    num_bytes = models.PositiveBigIntegerField(default=0, help_text="of what is under `key`")
    rewards = models.JSONField(default=list, help_text="(G) numbers, null where ungraded")
    num_tokens = models.PositiveIntegerField(
        default=0, help_text="prompt counted once, plus generated"
    )

    tenant_path = "step__task__tenant"
    objects = TenantQuerySet.as_manager()

    class Meta:
        ordering = ["index"]
        constraints = [
            models.UniqueConstraint(fields=["step", "index"], name="groups_are_numbered")
        ]
        indexes = [models.Index(fields=["state"])]

    def __str__(self) -> str:
        return f"group {self.index} of step {self.step_id}"
