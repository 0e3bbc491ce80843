"""Organisations, who belongs to them, and how much they may use."""

import math
from datetime import UTC, date, datetime
from typing import Any

from django.conf import settings
from django.core.exceptions import ValidationError
from django.core.validators import MaxValueValidator, MinValueValidator
from django.db import models

from engine.config import FIELDS

from .tenancy import TenantQuerySet

MAX_RANK = FIELDS["lora_rank"].metadata["high"]
WEIGHT_MEANING = (
    "share of the devices' time: 3 gets three times the device-seconds of 1 while both have work"
)


def check_finite(value: float) -> None:
    """Every comparison with nan fails, so it would pass all limits. Raises: ValidationError."""
    if not math.isfinite(value):
        raise ValidationError("Must be a finite number.")


def _quota(meaning: str, low: float, high: float, default: float, *checks: Any) -> dict[str, Any]:
    """A quota's default and limits, and the help that tells them.

    Forms, the API and the admin all read them here. high is far from what anybody needs: it only
    keeps sums within what databases and JSON hold. Where low is 0, that means no limit.
    """
    limits = f"from {low:,} to {high:,}; default {default:,}"
    return {
        "default": default,
        "validators": [MinValueValidator(low), MaxValueValidator(high), *checks],
        "help_text": f"{meaning}; {limits}" + ("" if low else "; 0: no limit"),
    }


class Tenant(models.Model):
    """An organisation. 0 means no limit in each quota, except for weight and rank."""

    slug = models.SlugField(unique=True)
    name = models.CharField(max_length=100)
    weight = models.FloatField(**_quota(WEIGHT_MEANING, 0.01, 1000, 1.0, check_finite))
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
        **_quota("tasks running or paused at once; more wait in the queue", 0, 10_000, 4)
    )
    tokens_per_day = models.PositiveBigIntegerField(
        **_quota("tokens generated and read a day (UTC)", 0, 10**15, 0)
    )
    max_lora_rank = models.PositiveIntegerField(
        **_quota("largest rank that a task's adapter may have", 1, MAX_RANK, 64)
    )
    max_step_tokens = models.PositiveBigIntegerField(
        **_quota(
            "batch_size x group_size x (max_prompt_length + max_completion_length) of a task:"
            " a training pass holds as many in memory, about 200 bytes each",
            *(0, 10**12, 4_194_304),
        )
    )
    max_stored_mib = models.PositiveBigIntegerField(
        **_quota(
            "MiB of datasets, versions and trajectories; full, no step is begun",
            *(0, 10**9, 20_480),
        )
    )
    stored_bytes = models.PositiveBigIntegerField(
        default=0, editable=False, help_text="what is stored, as last measured"
    )
    is_suspended = models.BooleanField(
        default=False, help_text="nothing new is dispatched; default: not suspended"
    )
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
