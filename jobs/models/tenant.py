"""Organisations, who belongs to them, and how much they may use."""

from datetime import UTC, date, datetime

from django.conf import settings
from django.core.validators import MinValueValidator
from django.db import models

from .tenancy import TenantQuerySet


class Tenant(models.Model):
    """An organisation. 0 means no limit in each quota."""

    slug = models.SlugField(unique=True)
    name = models.CharField(max_length=100)
    weight = models.FloatField(
        default=1.0,
        validators=[MinValueValidator(0.01)],
        help_text="share of device-seconds among tenants that have work",
    )
    virtual_time = models.FloatField(
        default=0.0,
        editable=False,
        help_text="device-seconds dispatched / weight, for fair queueing",
    )
    last_start = models.FloatField(
        default=0.0,
        editable=False,
        help_text="virtual time when it was last served as the one furthest back",
    )
    max_concurrent_tasks = models.PositiveIntegerField(
        default=4, help_text="tasks running or paused at once; more wait in the queue; 0: no limit"
    )
    tokens_per_day = models.PositiveBigIntegerField(
        default=0, help_text="tokens generated and read a day (UTC); 0: no limit"
    )
    max_lora_rank = models.PositiveIntegerField(
        default=64, validators=[MinValueValidator(1)], help_text="largest adapter rank"
    )
    max_step_tokens = models.PositiveBigIntegerField(
        default=4_194_304,
        help_text="batch_size x group_size x (max_prompt_length + max_completion_length) of a task:"
        " a training pass holds as many in memory, about 200 bytes each; 0: no limit",
    )
    max_stored_mib = models.PositiveBigIntegerField(
        default=20_480,
        help_text="MiB of datasets, versions and trajectories; full, no step is begun; 0: no limit",
    )
    stored_bytes = models.PositiveBigIntegerField(
        default=0, editable=False, help_text="what is stored, as last measured"
    )
    is_suspended = models.BooleanField(default=False, help_text="nothing new is dispatched")
    created_at = models.DateTimeField(auto_now_add=True)

    tenant_path = ""
    objects = TenantQuerySet.as_manager()

    class Meta:
        ordering = ["slug"]

    def __str__(self) -> str:
        return self.name


class Member(models.Model):
    """A user in a tenant."""

    class Role(models.TextChoices):
        OWNER = "owner", "Owner"
        MEMBER = "member", "Member"
        VIEWER = "viewer", "Viewer"

    tenant = models.ForeignKey(Tenant, on_delete=models.CASCADE, related_name="members")
    user = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="memberships"
    )
    role = models.CharField(max_length=8, choices=Role, default=Role.MEMBER)
    created_at = models.DateTimeField(auto_now_add=True)

    tenant_path = "tenant"
    objects = TenantQuerySet.as_manager()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["tenant", "user"], name="one_membership")]

    def __str__(self) -> str:
        return f"{self.user} in {self.tenant} ({self.role})"


class TokenUsage(models.Model):
    """Tokens a tenant used on a day (UTC)."""

    tenant = models.ForeignKey(Tenant, on_delete=models.CASCADE, related_name="usage")
    day = models.DateField()
    tokens = models.PositiveBigIntegerField(default=0)

    tenant_path = "tenant"
    objects = TenantQuerySet.as_manager()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["tenant", "day"], name="one_usage_a_day")]

    def __str__(self) -> str:
        return f"{self.tenant} {self.day}: {self.tokens} tokens"

    @staticmethod
    def today() -> date:
        """The day that quotas count now, in UTC."""
        return datetime.now(UTC).date()
