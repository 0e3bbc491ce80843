"""Policy versions of a task, and their adapters as a zip file."""

from __future__ import annotations

import io
import zipfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

from asgiref.sync import sync_to_async
from django.http import StreamingHttpResponse
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import extend_schema, extend_schema_field
from rest_framework import serializers
from rest_framework.renderers import BaseRenderer, JSONRenderer
from rest_framework.request import Request

from engine.errors import ArtifactError
from jobs import artifacts
from jobs.models import PolicyVersion

from .views import JSONErrors, OwnedList, OwnedView, find

ADAPTER_FILES = "adapter_*"  # for inference; the training state beside it is not for download
CHUNK_BYTES = 2**20


class CanarySerializer(serializers.Serializer[Any]):
    """Whether the adapter is served as it was trained: log-probs of fixed tokens, compared."""

    mean = serializers.FloatField(help_text="nats a token: mean absolute difference")
    max = serializers.FloatField(help_text="nats: largest absolute difference")
    kl = serializers.FloatField(help_text="nats a token: mean of k3, a distance")
    base_mean = serializers.FloatField(
        help_text="nats a token: mean absolute difference to the base model without the adapter"
    )
    problem = serializers.CharField(help_text="what is wrong; empty: nothing")
    at = serializers.DateTimeField()


class VersionSerializer(serializers.ModelSerializer[PolicyVersion]):
    is_available = serializers.SerializerMethodField(help_text="false: its files were cleaned up")

    canary = serializers.SerializerMethodField(
        help_text="last check of the served weights; null: not checked yet, as version 0 never is"
    )

    class Meta:
        model = PolicyVersion
        fields = (
            "number",
            "digest",
            "num_bytes",
            "is_kept",
            "is_available",
            "canary",
            "created_at",
        )

    def get_is_available(self, version: PolicyVersion) -> bool:
        """Whether it can be downloaded."""
        return version.deleted_at is None

    @extend_schema_field(CanarySerializer(allow_null=True))
    def get_canary(self, version: PolicyVersion) -> dict[str, Any] | None:
        return version.canary or None


class Versions(OwnedList):
    """The committed versions of a task, in order; 0 is the untrained adapter."""

    rows = PolicyVersion.objects.all()
    ordering = ("number",)
    serializer_class = VersionSerializer


class ZipRenderer(BaseRenderer):
    """Lets clients ask for a zip file; the view itself streams it."""

    media_type = "application/zip"
    format = "zip"


class VersionDownload(JSONErrors, OwnedView):
    """A version's adapter in PEFT format."""

    rows = PolicyVersion.objects.all()
    renderer_classes = (JSONRenderer, ZipRenderer)

    @extend_schema(responses={(200, "application/zip"): OpenApiTypes.BINARY})
    def get(self, request: Request, task_id: Any, number: int) -> StreamingHttpResponse:
        """A zip file of adapter_config.json and adapter_model.safetensors, streamed."""
        version = find(self.rows, request, task=task_id, number=number)
        if version.deleted_at:
            raise ArtifactError(f"version {number} was cleaned up")
        files = sorted(artifacts.local_directory(version.key).glob(ADAPTER_FILES))
        name = f"adapter-{str(task_id)[:8]}-v{number}.zip"
        return StreamingHttpResponse(
            _in_threads(zip_chunks(files)),
            content_type="application/zip",
            headers={"Content-Disposition": f'attachment; filename="{name}"'},
        )


class _Sink(io.RawIOBase):
    """Keeps what the zip writer writes until it is taken."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self._parts.append(bytes(data))
        return len(data)

    def take(self) -> bytes:
        parts, self._parts = self._parts, []
        return b"".join(parts)


def zip_chunks(files: list[Path]) -> Iterator[bytes]:
    """A zip file of these files, piece by piece; tensors do not compress, so they are stored."""
    sink = _Sink()
    with zipfile.ZipFile(sink, "w", zipfile.ZIP_STORED) as archive:
        for path in files:
            entry = zipfile.ZipInfo(path.name)
            with path.open("rb") as source, archive.open(entry, "w", force_zip64=True) as target:
                while chunk := source.read(CHUNK_BYTES):
                    target.write(chunk)
                    yield sink.take()
    yield sink.take()


async def _in_threads(chunks: Iterator[bytes]) -> AsyncIterator[bytes]:
    """The same pieces, each made off the event loop."""
    while chunk := await sync_to_async(next, thread_sensitive=False)(chunks, b""):
        yield chunk
