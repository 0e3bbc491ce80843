"""Checks of tasks before they are submitted."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import extend_schema, extend_schema_field
from rest_framework import generics, serializers
from rest_framework.request import Request
from rest_framework.response import Response

from jobs.models import Preflight
from jobs.services.preflight import start_preflight
from jobs.services.tenants import choose_tenant

from .documents import ConfigField, GradersField
from .views import OwnedList, OwnedView, body_fields

FIELDS = ("name", "base_model", "dataset", "config", "graders", "tenant")


class PreflightListSerializer(serializers.ModelSerializer[Preflight]):
    """Without the report."""

    tenant = serializers.SlugRelatedField(slug_field="slug", read_only=True)
    base_model = serializers.SlugRelatedField(slug_field="slug", read_only=True)
    dataset_name = serializers.CharField(source="dataset.name", read_only=True)
    created_by = serializers.StringRelatedField()

    class Meta:
        model = Preflight
        fields: tuple[str, ...] = (
            "id",
            "tenant",
            "name",
            "base_model",
            "dataset",
            "dataset_name",
            "created_by",
            "state",
            "doing",
            "share_done",
            "error",
            "created_at",
            "started_at",
            "ended_at",
        )


class FindingSerializer(serializers.Serializer[Any]):
    severity = serializers.ChoiceField(("error", "warning", "note"))
    code = serializers.CharField(help_text="stable, for programs")
    sentence = serializers.CharField(help_text="what is wrong, and where")
    fix = serializers.CharField(help_text="what to do")


class ReportSerializer(serializers.Serializer[Any]):
    """{} until the check is done; None where a part was not reached."""

    problems = FindingSerializer(many=True, help_text="the gravest first")
    lengths = serializers.DictField(help_text="of prompts, in tokens; rows over the limit")
    references = serializers.ListField(
        child=serializers.DictField(), help_text="by grader: reference answers that cannot be read"
    )
    samples = serializers.DictField(
        allow_null=True, help_text="solve rate, rewards, lengths, latencies of sampled completions"
    )
    zero_variance = serializers.DictField(
        allow_null=True, help_text="share of groups without a signal: observed, expected, low, high"
    )
    costs = serializers.DictField(
        allow_null=True, help_text="estimated tokens, seconds, epochs and days of quota"
    )
    other_columns = serializers.ListField(
        child=serializers.DictField(), help_text="that fit a grader better than its own"
    )
    tool_format = serializers.CharField(help_text="empty: no tools")
    template_problems = serializers.ListField(child=serializers.CharField())
    template_notes = serializers.ListField(child=serializers.CharField())
    remarks = serializers.ListField(
        child=serializers.CharField(), help_text="what was not looked at, and why"
    )
    examples = serializers.ListField(
        child=serializers.DictField(), help_text="telling completions with their rewards"
    )
    config = serializers.DictField(help_text="settings that figures refer to")


class PreflightSerializer(PreflightListSerializer):
    config = ConfigField()
    graders = GradersField()
    report = serializers.SerializerMethodField(help_text="once it is done")

    class Meta(PreflightListSerializer.Meta):
        fields = (*PreflightListSerializer.Meta.fields, "config", "graders", "report")

    @extend_schema_field(ReportSerializer)
    def get_report(self, row: Preflight) -> dict[str, Any]:
        """As it was stored."""
        found: dict[str, Any] = row.report
        return found


class PreflightRequestSerializer(serializers.Serializer[Any]):
    """A task as it would be submitted."""

    name = serializers.CharField(max_length=100, required=False)
    base_model = serializers.CharField(help_text="slug of a base model")
    dataset = serializers.UUIDField()
    config = ConfigField(required=False)
    graders = GradersField()
    tenant = serializers.CharField(required=False, help_text="slug; not needed if in one only")


def shown_preflights() -> Any:
    """Checks with all that their serializers show."""
    return Preflight.objects.select_related("tenant", "base_model", "dataset", "created_by")


class Preflights(OwnedList):
    """The checks of one's tenants, newest first; the newest hundred of a tenant are kept."""

    ordering = ("-created_at", "id")
    serializer_class = PreflightListSerializer
    rows = shown_preflights()

    @extend_schema(request=PreflightRequestSerializer, responses={202: PreflightSerializer})
    def post(self, request: Request) -> Response:
        """Check a task: refused with every wrong field as a task is, or begun."""
        data = body_fields(request, FIELDS)
        row = start_preflight(
            tenant=choose_tenant(request.user, data.get("tenant")),
            user=request.user,
            name=data.get("name"),
            base_model=data.get("base_model"),
            dataset=data.get("dataset"),
            config=data.get("config", {}),
            graders=data.get("graders"),
        )
        return Response(PreflightSerializer(row).data, status=202)


class PreflightDetail(OwnedView, generics.RetrieveAPIView[Preflight]):
    """One check: queued, running with how far it is, done with its report, or failed."""

    rows = shown_preflights()
    serializer_class = PreflightSerializer
    lookup_url_kwarg = "preflight_id"
