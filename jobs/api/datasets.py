"""Datasets: uploads, previews of files, versions, their first rows, and what is known of them."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from django.core.exceptions import ValidationError as DjangoValidationError
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import generics, serializers
from rest_framework.exceptions import ValidationError
from rest_framework.request import Request
from rest_framework.response import Response

from engine.errors import SpecError
from engine.parameters import shown
from jobs.models import Dataset, DatasetImport
from jobs.services.base_models import find_base_model
from jobs.services.dataset_imports import start_source, take_upload
from jobs.services.dataset_overlap import shared_prompts
from jobs.services.datasets import preview
from jobs.services.imports.options import FORMATS, parse_options
from jobs.services.imports.previewing import preview_file
from jobs.services.imports.sources import parse_source
from jobs.services.imports.text import ENCODINGS
from jobs.services.prompt_lengths import measure_lengths
from jobs.services.tenants import choose_tenant

from .parsers import UploadParser
from .views import OwnedList, OwnedView, body_fields, find, whole_number, whole_parameter

MAX_PREVIEW_ROWS = 100
MAX_ROW_NUMBER = 10_000_000
MAX_COMPARED_ROWS = 300_000
OPTIONS = ("kind", "on_bad_rows", "encoding", "format", "mapping", "eval_fraction", "has_header")


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


class LengthsSerializer(serializers.Serializer[Any]):
    num_rows = serializers.IntegerField(help_text="measured, from the first on")
    min = serializers.IntegerField()
    median = serializers.IntegerField()
    p95 = serializers.IntegerField()
    max = serializers.IntegerField()
    limit = serializers.IntegerField()
    num_over = serializers.IntegerField()
    num_refused = serializers.IntegerField()
    refusal = serializers.CharField()


class OverlapSerializer(serializers.Serializer[Any]):
    count = serializers.IntegerField(help_text="rows of the other whose prompt is in this one")
    examples = serializers.ListField(child=serializers.CharField())


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


class SourceSerializer(serializers.Serializer[Any]):
    """Rows to be generated or fetched."""

    name = serializers.CharField(help_text="of the dataset")
    tenant = serializers.CharField(required=False, help_text="slug; not needed if in one only")
    source = serializers.DictField(
        help_text='{"kind": "reasoning_gym", "task": "countdown", "seed": 42, "size": 500} or'
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
        tenant = choose_tenant(request.user, fields.get("tenant"))
        row = start_source(
            tenant=tenant,
            user=request.user,
            name=fields.get("name"),
            source=parse_source(fields.get("source", {})),
            options=parse_options(fields.get("options", {})),
        )
        return Response(ImportSerializer(row).data, status=202)


class FilePreview(generics.GenericAPIView):
    """What an import would make of a file; nothing is stored."""

    parser_classes = (UploadParser,)
    serializer_class = FilePreviewSerializer

    @extend_schema(request=HeadSerializer, responses=FilePreviewSerializer)
    def post(self, request: Request) -> Response:
        """Format, encoding, columns, mapping, first rows and warnings of a file or its head."""
        file = _file(request, {})
        name = request.data.get("file_name") or file.name
        is_head = str(request.data.get("is_head", "")).lower() in ("true", "1", "on")
        return Response(preview_file(file, str(name), _options(request), cut=is_head))


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


class DatasetLengths(OwnedView):
    """How many tokens a dataset's prompts have."""

    rows = Dataset.objects.all()

    @extend_schema(
        responses=LengthsSerializer,
        parameters=[
            OpenApiParameter("base_model", str, required=True, description="slug"),
            whole_parameter("limit", "tokens; 0: the default max_prompt_length", 0, 10**7),
        ],
    )
    def get(self, request: Request, dataset_id: Any) -> Response:
        """With a base model's tokenizer and chat template; of the first 2,000 rows."""
        dataset = find(self.rows, request, pk=dataset_id)
        limit = whole_number(request, "limit", 0, 0, 10**7)
        base_model = find_base_model(request.query_params.get("base_model"))
        return Response(asdict(measure_lengths(dataset, base_model, limit)))


class DatasetOverlap(OwnedView):
    """Which prompts another dataset shares with this one."""

    rows = Dataset.objects.all()

    @extend_schema(
        responses=OverlapSerializer,
        parameters=[OpenApiParameter("other", str, required=True, description="a dataset's id")],
    )
    def get(self, request: Request, dataset_id: Any) -> Response:
        """How many rows of the other have a prompt of this one, and the first such prompts."""
        dataset = find(self.rows, request, pk=dataset_id)
        other = _other(self.rows, request)
        if dataset.num_rows + other.num_rows > MAX_COMPARED_ROWS:
            message = f"Together they have more than {MAX_COMPARED_ROWS:,} rows."
            raise SpecError({"other": [message]})
        return Response(asdict(shared_prompts(dataset, other)))


def _other(rows: Any, request: Request) -> Dataset:
    key = request.query_params.get("other", "")
    try:
        found = rows.for_user(request.user).filter(pk=key).first()
    except (ValueError, DjangoValidationError):
        found = None
    if found is None:
        raise SpecError({"other": ["There is no such dataset; give the id of one."]})
    return found


class ImportDetail(OwnedView, generics.RetrieveAPIView[DatasetImport]):
    """One large upload: importing, ready, or failed with its bad lines."""

    rows = DatasetImport.objects.select_related("tenant")
    serializer_class = ImportSerializer
    lookup_url_kwarg = "import_id"
