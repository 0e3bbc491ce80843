"""Prompts with their reference answers, or documents to search; immutable once stored."""

import uuid

from django.conf import settings
from django.db import models

from .tenancy import TenantQuerySet
from .tenant import Tenant


class DatasetQuerySet(TenantQuerySet):
    """Versions of datasets."""

    def newest(self) -> "DatasetQuerySet":
        """Of each name the version with the highest number."""
        later = Dataset.objects.filter(
            tenant=models.OuterRef("tenant"),
            name=models.OuterRef("name"),
            version__gt=models.OuterRef("version"),
        )
        return self.filter(~models.Exists(later))

    def prompts(self) -> "DatasetQuerySet":
        """What tasks can train on."""
        return self.filter(kind=Dataset.Kind.PROMPTS)


class Dataset(models.Model):
    """One version of a dataset: checked rows in the artifact store, one JSON object a line.

    A row of prompts has `messages` (chat, last one of the user) and any other columns, which reward
    functions see by name. A row of a corpus has `title` and `text`.
    """

    class Kind(models.TextChoices):
        PROMPTS = "prompts"
        CORPUS = "corpus"

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    tenant = models.ForeignKey(Tenant, on_delete=models.CASCADE, related_name="datasets")
    name = models.CharField(max_length=100)
    version = models.PositiveIntegerField(default=1, help_text="of this name, from 1")
    kind = models.CharField(max_length=10, choices=Kind.choices, default=Kind.PROMPTS)
    created_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="+"
    )
    num_rows = models.PositiveIntegerField()
    num_bytes = models.PositiveBigIntegerField()
    columns = models.JSONField(
        default=list, help_text="names of the columns, in order of appearance"
    )
    sha256 = models.CharField(max_length=64)
    key = models.CharField(max_length=300, help_text="in the artifact store")
    created_at = models.DateTimeField(auto_now_add=True)

    file_name = models.CharField(
        max_length=255, blank=True, help_text="the uploader's; for display, never a path"
    )
    format = models.CharField(max_length=20, blank=True, help_text="of the file, as detected")
    encoding = models.CharField(max_length=20, blank=True, help_text="of the file")
    mapping = models.JSONField(default=dict, blank=True, help_text="{role: column of the file}")
    warnings = models.JSONField(default=list, blank=True, help_text="sentences")
    skipped = models.JSONField(
        default=list, blank=True, help_text="[line, reason] of rows left out, the first hundred"
    )
    num_skipped = models.PositiveIntegerField(default=0)
    eval_split = models.ForeignKey(
        "self",
        null=True,
        blank=True,
        on_delete=models.SET_NULL,
        related_name="+",
        help_text="the rows of the same file that were set aside",
    )

    tenant_path = "tenant"
    objects = DatasetQuerySet.as_manager()

    class Meta:
        ordering = ["-created_at"]
        constraints = [
            models.UniqueConstraint(
                fields=["tenant", "name", "version"], name="one_dataset_a_version"
            ),
            models.UniqueConstraint(
                fields=["tenant", "name", "sha256"], name="one_version_a_content"
            ),
        ]

    def __str__(self) -> str:
        return self.name if self.version == 1 else f"{self.name}, version {self.version}"


class DatasetImport(models.Model):
    """An upload that is too large to be read within its request, on its way to a dataset."""

    class State(models.TextChoices):
        IMPORTING = "importing"
        READY = "ready"
        FAILED = "failed"

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    tenant = models.ForeignKey(Tenant, on_delete=models.CASCADE, related_name="dataset_imports")
    created_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="+"
    )
    name = models.CharField(max_length=100, help_text="of the dataset that it will be")
    file_name = models.CharField(max_length=255, blank=True)
    source = models.JSONField(default=dict, help_text="what is read; {}: the uploaded file")
    options = models.JSONField(default=dict)
    key = models.CharField(max_length=300, blank=True, help_text="the upload; blank once read")
    num_bytes = models.PositiveBigIntegerField(default=0, help_text="of the upload")
    bytes_read = models.PositiveBigIntegerField(default=0)
    num_rows = models.PositiveIntegerField(default=0, help_text="good ones so far")
    state = models.CharField(max_length=10, choices=State.choices, default=State.IMPORTING)
    attempt = models.PositiveSmallIntegerField(default=0, help_text="how often it was begun")
    beat_at = models.DateTimeField(null=True, help_text="last sign of who reads it")
    dataset = models.ForeignKey(Dataset, null=True, on_delete=models.SET_NULL, related_name="+")
    is_new = models.BooleanField(default=True, help_text="whether it made the dataset's version")
    error = models.TextField(blank=True)
    lines = models.JSONField(default=list, help_text="[line, reason] of bad rows")
    num_bad_lines = models.PositiveIntegerField(default=0)
    created_at = models.DateTimeField(auto_now_add=True)
    ended_at = models.DateTimeField(null=True)

    tenant_path = "tenant"
    objects = TenantQuerySet.as_manager()

    class Meta:
        ordering = ["-created_at"]

    def __str__(self) -> str:
        return f"{self.name}: {self.state}"
