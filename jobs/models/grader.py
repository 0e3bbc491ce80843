"""Reward functions that a tenant keeps under a name, version by version."""

import uuid

from django.conf import settings
from django.db import models

from .task import Task
from .tenancy import TenantQuerySet
from .tenant import Tenant


class Grader(models.Model):
    """A name; what it means is in its versions, of which it has one at least."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    tenant = models.ForeignKey(Tenant, on_delete=models.CASCADE, related_name="graders")
    name = models.CharField(max_length=50)
    created_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="+"
    )
    created_at = models.DateTimeField(auto_now_add=True)

    tenant_path = "tenant"
    objects = TenantQuerySet.as_manager()

    class Meta:
        ordering = ["name"]
        constraints = [models.UniqueConstraint(fields=["tenant", "name"], name="one_grader_a_name")]

    def __str__(self) -> str:
        return self.name


class GraderVersion(models.Model):
    """What a grader was from one save to the next; immutable."""

    grader = models.ForeignKey(Grader, on_delete=models.CASCADE, related_name="versions")
    number = models.PositiveIntegerField(help_text="of this grader, from 1")
    type = models.CharField(max_length=30, help_text="among engine.rewards.GRADERS")
    spec = models.JSONField(help_text="as engine.rewards.dump_graders gives it")
    digest = models.CharField(max_length=64, help_text="engine.rewards.grader_digest of the spec")
    created_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="+"
    )
    created_at = models.DateTimeField(auto_now_add=True)

    tenant_path = "grader__tenant"
    objects = TenantQuerySet.as_manager()

    class Meta:
        ordering = ["-number"]
        constraints = [
            models.UniqueConstraint(fields=["grader", "number"], name="one_grader_a_version")
        ]

    def __str__(self) -> str:
        return f"{self.grader}, version {self.number}"


class GraderUse(models.Model):
    """Where a task's reward function came from. The task has a copy: this is for people."""

    task = models.ForeignKey(Task, on_delete=models.CASCADE, related_name="grader_uses")
    place = models.PositiveSmallIntegerField(help_text="among the task's reward functions, from 0")
    version = models.ForeignKey(
        GraderVersion, null=True, on_delete=models.SET_NULL, related_name="uses"
    )
    name = models.CharField(max_length=50, help_text="of the grader, as it was")
    number = models.PositiveIntegerField(help_text="of the version")

    tenant_path = "task__tenant"
    objects = TenantQuerySet.as_manager()

    class Meta:
        ordering = ["place"]
        constraints = [
            models.UniqueConstraint(fields=["task", "place"], name="one_origin_a_grader")
        ]

    def __str__(self) -> str:
        return f"{self.name}, version {self.number}"
