"""Large uploads and rows from elsewhere, on their way to datasets."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework import generics, serializers
from rest_framework.exceptions import ValidationError
from rest_framework.request import Request
from rest_framework.response import Response

from engine.parameters import shown
from jobs.models import DatasetImport
from jobs.services.dataset_imports import start_source
from jobs.services.imports.options import Options, parse_options
from jobs.services.imports.sources import SOURCES, parse_source
from jobs.services.tenants import choose_tenant

from .views import OwnedList, OwnedView, body_fields, refuse_unknown


class ImportSerializer(serializers.ModelSerializer[DatasetImport]):
    tenant = serializers.SlugRelatedField(slug_field="slug", read_only=True)
    dataset = serializers.PrimaryKeyRelatedField(read_only=True, allow_null=True)

    class Meta:
        model = DatasetImport
        fields = (
            "id",
            "tenant",
            "name",
            "file_name",
            "state",
            "num_bytes",
            "bytes_read",
            "num_rows",
            "dataset",
            "is_new",
            "error",
            "num_bad_lines",
            "lines",
            "created_at",
            "ended_at",
        )


class SourceSerializer(serializers.Serializer[Any]):
    """Rows to be generated or fetched."""

    name = serializers.CharField(help_text="of the dataset")
    tenant = serializers.CharField(required=False, help_text="slug; not needed if in one only")
    source = serializers.DictField(
        help_text='{"kind": "reasoning_gym", "task": "leg_counting", "seed": 42, "size": 500} or'
        ' {"kind": "hub", "id": "openai/gsm8k", "config": "main", "split": "train",'
        ' "revision": "", "max_rows": 100000}'
    )
    options = serializers.DictField(required=False, help_text="as in the form of an upload")


class Imports(OwnedList):
    """Large uploads and other sources of one's tenants, and how far they are; kept for a week."""

    rows = DatasetImport.objects.select_related("tenant")
    ordering = ("-created_at", "id")
    serializer_class = ImportSerializer

    @extend_schema(request=SourceSerializer, responses={202: ImportSerializer})
    def post(self, request: Request) -> Response:
        """Generate rows with reasoning-gym, or fetch them from the Hugging Face hub."""
        fields = body_fields(request, ("name", "tenant", "source", "options"))
        errors = {
            name: [f"Must be an object, not {shown(fields.get(name))}."]
            for name in ("source", "options")
            if not isinstance(fields.get(name, {}), dict)
        }
        if errors:
            raise ValidationError(errors)
        source, options = fields.get("source", {}), fields.get("options", {})
        chosen = parse_source(source)
        refuse_unknown(source, ("kind", *SOURCES[chosen["kind"]]), "source")
        refuse_unknown(options, tuple(Options().to_json()), "options")
        tenant = choose_tenant(request.user, fields.get("tenant"))
        row = start_source(
            tenant=tenant,
            user=request.user,
            name=fields.get("name"),
            source=chosen,
            options=parse_options(options),
        )
        return Response(ImportSerializer(row).data, status=202)


class ImportDetail(OwnedView, generics.RetrieveAPIView[DatasetImport]):
    """One large upload: importing, ready, or failed with its bad lines."""

    rows = DatasetImport.objects.select_related("tenant")
    serializer_class = ImportSerializer
    lookup_url_kwarg = "import_id"
