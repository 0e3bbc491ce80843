"""Datasets: uploads, their descriptions, their first rows."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework import generics, serializers
from rest_framework.exceptions import ValidationError
from rest_framework.request import Request
from rest_framework.response import Response

from jobs.models import Dataset
from jobs.services.datasets import import_dataset, preview
from jobs.services.tenants import choose_tenant

from .parsers import UploadParser
from .views import OwnedList, OwnedView, find, whole_number, whole_parameter

MAX_PREVIEW_ROWS = 100


class DatasetSerializer(serializers.ModelSerializer[Dataset]):
    tenant = serializers.SlugRelatedField(slug_field="slug", read_only=True)
    created_by = serializers.StringRelatedField()

    class Meta:
        model = Dataset
        fields = (
            "id",
            "tenant",
            "name",
            "num_rows",
            "num_bytes",
            "columns",
            "sha256",
            "created_by",
            "created_at",
        )


class UploadSerializer(serializers.Serializer[Any]):
    """The form of an upload."""

    name = serializers.CharField(help_text="at most 100 characters, unique in the tenant")
    file = serializers.FileField(allow_empty_file=True, help_text="JSON Lines in UTF-8")
    tenant = serializers.CharField(required=False, help_text="slug; not needed if in one only")


class PreviewSerializer(serializers.Serializer[Any]):
    num_rows = serializers.IntegerField(help_text="of the dataset")
    rows = serializers.ListField(child=serializers.DictField())


class Datasets(OwnedList):
    """The datasets of one's tenants, newest first."""

    rows = Dataset.objects.select_related("tenant", "created_by")
    ordering = ("-created_at", "id")
    serializer_class = DatasetSerializer
    parser_classes = (UploadParser,)

    @extend_schema(request=UploadSerializer, responses={201: DatasetSerializer})
    def post(self, request: Request) -> Response:
        """Upload one: it is stored whole, or refused with its bad lines."""
        file, name = request.data.get("file"), request.data.get("name")
        errors = {} if name else {"name": ["Is required."]}
        if not hasattr(file, "readline"):
            errors["file"] = ["Is required: a file of JSON Lines in a multipart form."]
        if errors:
            raise ValidationError(errors)
        tenant = choose_tenant(request.user, request.data.get("tenant"))
        dataset = import_dataset(tenant=tenant, user=request.user, name=name, file=file)
        return Response(DatasetSerializer(dataset).data, status=201)


class DatasetDetail(OwnedView, generics.RetrieveAPIView[Dataset]):
    """One dataset."""

    rows = Dataset.objects.select_related("tenant", "created_by")
    serializer_class = DatasetSerializer
    lookup_url_kwarg = "dataset_id"


class DatasetPreview(OwnedView):
    """The first rows of a dataset, as they are stored."""

    rows = Dataset.objects.all()

    @extend_schema(
        responses=PreviewSerializer,
        parameters=[whole_parameter("limit", "rows", 1, MAX_PREVIEW_ROWS)],
    )
    def get(self, request: Request, dataset_id: Any) -> Response:
        """Ten rows, or as many as `limit` says."""
        dataset = find(self.rows, request, pk=dataset_id)
        limit = whole_number(request, "limit", 10, 1, MAX_PREVIEW_ROWS)
        return Response({"num_rows": dataset.num_rows, "rows": preview(dataset, limit)})
