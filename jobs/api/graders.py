"""Reward functions that a tenant saved, in versions; and trying and checking others."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import OpenApiResponse, extend_schema
from rest_framework import serializers
from rest_framework.exceptions import ValidationError
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from engine.errors import SpecError
from engine.parameters import shown
from engine.rewards.python_source import MAX_SOURCE_BYTES
from jobs.models import Dataset, Grader, GraderVersion, Tenant
from jobs.services.graders import MAX_NAME_CHARACTERS, delete_grader, save_grader, with_newest
from jobs.services.tenants import choose_tenant
from jobs.services.trials import (
    MAX_COMPLETION_CHARACTERS,
    MAX_SAMPLES,
    check_source,
    dataset_samples,
    try_graders,
)

from .documents import GraderField, GradersField
from .views import OwnedList, OwnedView, body_fields, find

UNAVAILABLE = OpenApiResponse(description="No environment worker answers; try again.")
TRIED = ("graders", "samples", "dataset", "rows", "start", "completions", "tenant")
MAX_START = 10_000_000


class GraderSerializer(serializers.ModelSerializer[Grader]):
    tenant = serializers.SlugRelatedField(slug_field="slug", read_only=True)
    created_by = serializers.StringRelatedField()
    version = serializers.IntegerField(source="newest_number", help_text="the newest")
    type = serializers.CharField(source="newest_type", help_text="of that version")
    changed_at = serializers.DateTimeField(source="newest_at")

    class Meta:
        model = Grader
        fields = (
            *("id", "tenant", "name", "version", "type"),
            *("created_by", "created_at", "changed_at"),
        )


class GraderVersionSerializer(serializers.ModelSerializer[GraderVersion]):
    grader = serializers.PrimaryKeyRelatedField(read_only=True)
    name = serializers.CharField(source="grader.name", read_only=True)
    spec = serializers.DictField(help_text="as in a task's list")
    created_by = serializers.StringRelatedField()

    class Meta:
        model = GraderVersion
        fields = ("grader", "name", "number", "type", "spec", "digest", "created_by", "created_at")


class NewGraderSerializer(serializers.Serializer[Any]):
    name = serializers.CharField(max_length=MAX_NAME_CHARACTERS)
    grader = GraderField()
    tenant = serializers.CharField(required=False, help_text="slug; not needed if in one only")


class SampleSerializer(serializers.Serializer[Any]):
    completion = serializers.CharField(
        max_length=MAX_COMPLETION_CHARACTERS, allow_blank=True, required=False
    )
    row = serializers.DictField(required=False, help_text="columns of the dataset")


class TrialSerializer(serializers.Serializer[Any]):
    """`samples`, or `dataset` with `completions` for its first rows."""

    graders = GradersField()
    samples = SampleSerializer(many=True, required=False, help_text=f"at most {MAX_SAMPLES}")
    dataset = serializers.UUIDField(required=False, help_text="instead of samples")
    rows = serializers.IntegerField(required=False, min_value=1, max_value=MAX_SAMPLES)
    start = serializers.IntegerField(required=False, min_value=0, max_value=MAX_START)
    completions = serializers.ListField(
        child=serializers.CharField(), required=False, help_text="one a row; absent ones are empty"
    )
    tenant = serializers.CharField(required=False, help_text="slug; not needed if in one only")


class ScoreSerializer(serializers.Serializer[Any]):
    name = serializers.CharField()
    score = serializers.FloatField(allow_null=True, help_text="null: ungraded")
    error = serializers.CharField(help_text="why it is ungraded")
    line = serializers.IntegerField(allow_null=True, help_text="of Python source, to blame")
    duration_us = serializers.IntegerField(help_text="µs; of a batch each has the same share")


class TriedSampleSerializer(serializers.Serializer[Any]):
    reward = serializers.FloatField(allow_null=True, help_text="weighted sum; null: ungraded")
    scores = ScoreSerializer(many=True)


class TriedGraderSerializer(serializers.Serializer[Any]):
    name = serializers.CharField()
    weight = serializers.FloatField()
    output = serializers.CharField(help_text="what its Python printed")


class TriedSerializer(serializers.Serializer[Any]):
    graders = TriedGraderSerializer(many=True)
    samples = TriedSampleSerializer(many=True)


class SourceToCheckSerializer(serializers.Serializer[Any]):
    source = serializers.CharField(max_length=MAX_SOURCE_BYTES)
    tenant = serializers.CharField(required=False, help_text="slug; not needed if in one only")


class ProblemSerializer(serializers.Serializer[Any]):
    message = serializers.CharField()
    line = serializers.IntegerField(allow_null=True)


class CheckedSerializer(serializers.Serializer[Any]):
    problem = ProblemSerializer(allow_null=True)


class Graders(OwnedList):
    """The saved reward functions of one's tenants."""

    rows = with_newest(Grader.objects.select_related("tenant", "created_by"))
    ordering = ("name", "id")
    serializer_class = GraderSerializer

    @extend_schema(
        request=NewGraderSerializer,
        responses={201: GraderVersionSerializer, 200: GraderVersionSerializer},
    )
    def post(self, request: Request) -> Response:
        """Save one. 201: a new version; 200: the newest one says the same already."""
        fields = body_fields(request, ("name", "grader", "tenant"))
        saved = save_grader(
            tenant=choose_tenant(request.user, fields.get("tenant")),
            user=request.user,
            name=fields.get("name"),
            spec=fields.get("grader"),
        )
        status = 201 if saved.is_new else 200
        return Response(GraderVersionSerializer(saved.version).data, status=status)


class GraderDetail(OwnedView):
    """One saved reward function."""

    rows = with_newest(Grader.objects.select_related("tenant", "created_by"))
    serializer_class = GraderSerializer

    @extend_schema(responses=GraderSerializer)
    def get(self, request: Request, grader_id: Any) -> Response:
        """Its newest version's number and type; `versions` has all."""
        return Response(GraderSerializer(find(self.rows, request, pk=grader_id)).data)

    @extend_schema(responses={204: None})
    def delete(self, request: Request, grader_id: Any) -> Response:
        """Forget it; tasks keep their copies."""
        delete_grader(find(self.rows, request, pk=grader_id), request.user)
        return Response(status=204)


class GraderVersions(OwnedList):
    """What a reward function was, newest first."""

    rows = GraderVersion.objects.select_related("grader", "created_by")
    ordering = ("-number",)
    serializer_class = GraderVersionSerializer

    def narrow(self, rows: Any) -> Any:
        """Those of the grader of the URL. Raises: Http404."""
        return rows.filter(grader=find(Grader.objects, self.request, pk=self.kwargs["grader_id"]))


class GraderTrial(APIView):
    """Reward functions on samples, before a task uses them."""

    @extend_schema(request=TrialSerializer, responses={200: TriedSerializer, 503: UNAVAILABLE})
    def post(self, request: Request) -> Response:
        """Score, error, line and time of each; waits a minute at most for a worker."""
        fields = body_fields(request, TRIED)
        tenant = choose_tenant(request.user, fields.get("tenant"))
        samples = _samples(tenant, fields) if "dataset" in fields else fields.get("samples")
        found = try_graders(
            tenant=tenant, user=request.user, graders=fields.get("graders"), samples=samples
        )
        return Response(found)


class GraderCheck(APIView):
    """Python before its function is called."""

    @extend_schema(
        request=SourceToCheckSerializer, responses={200: CheckedSerializer, 503: UNAVAILABLE}
    )
    def post(self, request: Request) -> Response:
        """What is wrong with its syntax, its imports or its function's name; null: nothing."""
        fields = body_fields(request, ("source", "tenant"))
        tenant = choose_tenant(request.user, fields.get("tenant"))
        return Response(check_source(tenant=tenant, user=request.user, source=fields.get("source")))


def _samples(tenant: Tenant, fields: dict[str, Any]) -> list[dict[str, Any]]:
    """Rows of the dataset that the body names. Raises: ValidationError; SpecError."""
    if "samples" in fields:
        raise ValidationError({"samples": ["Give these or a dataset, not both."]})
    key = serializers.UUIDField()
    try:
        pk = key.to_internal_value(fields["dataset"])
    except ValidationError as error:
        raise ValidationError({"dataset": error.detail}) from None
    dataset = Dataset.objects.of_tenant(tenant).filter(pk=pk).first()
    if dataset is None:
        raise SpecError({"dataset": [f"{tenant.name} has no dataset {shown(str(pk))}."]})
    num_rows = _number(fields, "rows", 5, 1, MAX_SAMPLES)
    start = _number(fields, "start", 0, 0, MAX_START)
    return dataset_samples(dataset, num_rows, fields.get("completions", ()), start)


def _number(fields: dict[str, Any], name: str, default: int, low: int, high: int) -> int:
    value = fields.get(name, default)
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        message = f"Must be a whole number from {low:,} to {high:,}, not {shown(value)}."
        raise ValidationError({name: [message]})
    return value
