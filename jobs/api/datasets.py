"""Datasets: uploads, previews of files, versions, their first rows, and what is known of them."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import generics, serializers
from rest_framework.exceptions import ValidationError
from rest_framework.request import Request
from rest_framework.response import Response

from jobs.models import Dataset, DatasetImport
from jobs.services.dataset_imports import take_upload
from jobs.services.datasets import preview
from jobs.services.imports.options import FORMATS, parse_options
from jobs.services.imports.previewing import join_ends, preview_file
from jobs.services.imports.text import ENCODINGS
from jobs.services.tenants import choose_tenant

from .dataset_imports import ImportSerializer
from .parsers import UploadParser
from .views import OwnedList, OwnedView, body_fields, find, whole_number, whole_parameter

MAX_PREVIEW_ROWS = 100
MAX_ROW_NUMBER = 10_000_000
OPTIONS = ("kind", "on_bad_rows", "encoding", "format", "mapping", "eval_fraction", "has_header")
FILE_FIELDS = ("file", *OPTIONS, "csrfmiddlewaretoken")  # the last one is sent by forms of pages


class DatasetSerializer(serializers.ModelSerializer[Dataset]):
    tenant = serializers.SlugRelatedField(slug_field="slug", read_only=True)
    created_by = serializers.StringRelatedField()
    eval_split = serializers.PrimaryKeyRelatedField(read_only=True, allow_null=True)

    class Meta:
        model = Dataset
        fields = (
            "id",
            "tenant",
            "name",
            "version",
            "kind",
            "num_rows",
            "num_bytes",
            "columns",
            "sha256",
            "file_name",
            "format",
            "encoding",
            "mapping",
            "warnings",
            "num_skipped",
            "skipped",
            "eval_split",
            "created_by",
            "created_at",
        )


class FileSerializer(serializers.Serializer[Any]):
    """A file with what a person may choose about it."""

    file = serializers.FileField(
        allow_empty_file=True,
        help_text="JSON Lines, a JSON array, CSV, TSV (each also in gzip), or Parquet",
    )
    kind = serializers.ChoiceField(
        Dataset.Kind.choices, required=False, help_text="default: prompts"
    )
    on_bad_rows = serializers.ChoiceField(
        ("stop", "skip"), required=False, help_text="default: stop, which stores nothing"
    )
    encoding = serializers.ChoiceField(
        ENCODINGS, required=False, help_text="of text; default: UTF-8, or what a mark tells"
    )
    format = serializers.ChoiceField(FORMATS, required=False, help_text="default: as detected")
    mapping = serializers.CharField(
        required=False,
        help_text='JSON such as {"prompt": "question", "answer": "reward_model.ground_truth"}',
    )
    eval_fraction = serializers.FloatField(
        required=False, help_text="share of the prompts stored apart, 0 to 0.5; default 0"
    )
    has_header = serializers.BooleanField(required=False, help_text="of CSV; default: true")


class UploadSerializer(FileSerializer):
    """The form of an upload."""

    name = serializers.CharField(
        help_text="at most 100 characters; one that is there gets its next version"
    )
    tenant = serializers.CharField(required=False, help_text="slug; not needed if in one only")


class HeadSerializer(FileSerializer):
    """The form of a preview."""

    file_name = serializers.CharField(required=False, help_text="if the part itself has another")
    is_head = serializers.BooleanField(
        required=False, help_text="only the start of a larger file; default: false"
    )
    tail = serializers.FileField(
        required=False, help_text="its end, of Parquet, which tells its columns there"
    )
    size = serializers.IntegerField(required=False, help_text="bytes of the whole, with `tail`")


class FilePreviewSerializer(serializers.Serializer[Any]):
    format = serializers.CharField()
    encoding = serializers.CharField()
    is_gzip = serializers.BooleanField(required=False)
    error = serializers.CharField(help_text="why the file cannot be read at all; empty if it can")
    is_head = serializers.BooleanField()
    num_rows = serializers.IntegerField(help_text="looked at")
    columns = serializers.ListField(
        child=serializers.DictField(), help_text="name, num_rows, types {type: first line}"
    )
    mapping = serializers.DictField(help_text="proposed, or as it was chosen")
    rows = serializers.ListField(child=serializers.DictField(), help_text="as stored; shortened")
    warnings = serializers.ListField(child=serializers.CharField())
    bad_lines = serializers.ListField(child=serializers.DictField())
    num_bad_lines = serializers.IntegerField()


class PreviewSerializer(serializers.Serializer[Any]):
    num_rows = serializers.IntegerField(help_text="of the dataset")
    rows = serializers.ListField(child=serializers.DictField())


class Datasets(OwnedList):
    """The newest versions of one's tenants' datasets, newest first."""

    rows = Dataset.objects.select_related("tenant", "created_by")
    ordering = ("-created_at", "id")
    serializer_class = DatasetSerializer
    parser_classes = (UploadParser,)

    def narrow(self, rows: Any) -> Any:
        """All versions of a name, if one is asked for."""
        name = self.request.query_params.get("name")
        return rows.newest() if name is None else rows.filter(name=name.replace("\0", ""))

    @extend_schema(
        parameters=[OpenApiParameter("name", str, description="all versions of this name")]
    )
    def get(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        """The list, a page at a time."""
        return super().get(request, *args, **kwargs)

    @extend_schema(
        request=UploadSerializer,
        responses={200: DatasetSerializer, 201: DatasetSerializer, 202: ImportSerializer},
    )
    def post(self, request: Request) -> Response:
        """Upload one: stored (201), there already with this content (200), or being read (202).

        A large file is read after the answer: ask `/dataset-imports/{id}` how far it is.
        """
        body_fields(request, ("name", "tenant", *FILE_FIELDS))
        name = request.data.get("name")
        file = _file(request, {} if name else {"name": ["Is required."]})
        tenant = choose_tenant(request.user, request.data.get("tenant"))
        taken = take_upload(
            tenant=tenant,
            user=request.user,
            name=name,
            file=file,
            file_name=file.name,
            options=_options(request),
        )
        if isinstance(taken, DatasetImport):
            return Response(ImportSerializer(taken).data, status=202)
        status = 201 if taken.is_new else 200
        return Response(DatasetSerializer(taken.dataset).data, status=status)


def _file(request: Request, errors: dict[str, list[str]]) -> Any:
    file = request.data.get("file")
    if not hasattr(file, "readline"):
        errors["file"] = ["Is required: a file in a multipart form."]
    if errors:
        raise ValidationError(errors)
    return file


def _options(request: Request) -> Any:
    return parse_options({name: request.data.get(name) for name in OPTIONS})


class FilePreview(generics.GenericAPIView):
    """What an import would make of a file; nothing is stored."""

    parser_classes = (UploadParser,)
    serializer_class = FilePreviewSerializer

    @extend_schema(request=HeadSerializer, responses=FilePreviewSerializer)
    def post(self, request: Request) -> Response:
        """Format, encoding, columns, mapping, first rows and warnings of a file or its head."""
        body_fields(request, (*FILE_FIELDS, "file_name", "is_head", "tail", "size"))
        file = _file(request, {})
        name = request.data.get("file_name") or file.name
        is_head = str(request.data.get("is_head", "")).lower() in ("true", "1", "on")
        options, tail = _options(request), request.data.get("tail")
        if not hasattr(tail, "readline"):
            return Response(preview_file(file, str(name), options, cut=is_head))
        with join_ends(file, tail, _file_size(request)) as whole:
            return Response(preview_file(whole, str(name), options, cut=True))


def _file_size(request: Request) -> int:
    """Raises: ValidationError on `size`."""
    text, limit = str(request.data.get("size", "")), settings.MAX_UPLOAD_MIB * 2**20
    if text.isascii() and text.isdigit() and len(text) < 16 and int(text) <= limit:
        return int(text)
    raise ValidationError({"size": [f"Must be a whole number of bytes up to {limit:,}."]})


class DatasetDetail(OwnedView, generics.RetrieveAPIView[Dataset]):
    """One version of a dataset."""

    rows = Dataset.objects.select_related("tenant", "created_by")
    serializer_class = DatasetSerializer
    lookup_url_kwarg = "dataset_id"


class DatasetPreview(OwnedView):
    """Rows of a dataset, as they are stored."""

    rows = Dataset.objects.all()

    @extend_schema(
        responses=PreviewSerializer,
        parameters=[
            whole_parameter("limit", "rows", 1, MAX_PREVIEW_ROWS),
            whole_parameter("start", "rows before the first", 0, MAX_ROW_NUMBER),
        ],
    )
    def get(self, request: Request, dataset_id: Any) -> Response:
        """Ten rows, or as many as `limit` says, from the first or from `start`."""
        dataset = find(self.rows, request, pk=dataset_id)
        limit = whole_number(request, "limit", 10, 1, MAX_PREVIEW_ROWS)
        start = whole_number(request, "start", 0, 0, MAX_ROW_NUMBER)
        return Response({"num_rows": dataset.num_rows, "rows": preview(dataset, limit, start)})
