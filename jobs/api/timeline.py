"""Spans: of a task, and of the whole installation as far as the viewer may see."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django.conf import settings
from django.db.models import Q
from django.utils import timezone
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from jobs.live.access import find_stream
from jobs.live.timeline import IN_USE, viewer
from jobs.models import Span
from jobs.services.events import CLUSTER

from .views import OwnedList, whole_number, whole_parameter

MAX_SPANS = 5_000
MAX_MINUTES = 1440


class SpanSerializer(serializers.ModelSerializer[Span]):
    class Meta:
        model = Span
        fields = ("task", "stage", "worker", "step", "group", "started_at", "ended_at", "tokens")


class SeenSpanSerializer(serializers.Serializer[Any]):
    is_own = serializers.BooleanField()
    tenant = serializers.CharField(
        help_text="name of one's own; others are numbered within this answer unless the operator"
        " opened the timeline"
    )
    task = serializers.UUIDField(allow_null=True)
    task_name = serializers.CharField(allow_null=True)
    stage = serializers.CharField(help_text=f"or {IN_USE} where even that is private")
    started_at = serializers.DateTimeField()
    ended_at = serializers.DateTimeField(allow_null=True, help_text="null: still going on")


class TimelineSerializer(serializers.Serializer[Any]):
    since = serializers.DateTimeField()
    is_cut = serializers.BooleanField(help_text=f"only the last {MAX_SPANS} spans are here")
    spans = SeenSpanSerializer(many=True)


class Spans(OwnedList):
    """The spans of a task, in order of their start."""

    rows = Span.objects.all()
    ordering = ("started_at", "id")
    serializer_class = SpanSerializer


class Timeline(APIView):
    """Who used the accelerators when."""

    @extend_schema(
        responses=TimelineSerializer,
        parameters=[whole_parameter("minutes", "to look back", 1, MAX_MINUTES)],
    )
    def get(self, request: Request) -> Response:
        """The spans of the last hour, or of as many minutes as asked for; none for who is in no
        tenant."""
        minutes = whole_number(request, "minutes", 60, 1, MAX_MINUTES)
        since = timezone.now() - timedelta(minutes=minutes)
        recent = Span.objects.filter(Q(ended_at__gte=since) | Q(ended_at=None)).order_by(
            "-started_at"
        )
        if find_stream(request.user, CLUSTER) is None:
            recent = recent.none()
        spans = list(recent.select_related("task__tenant")[: MAX_SPANS + 1])
        seen = _seen(spans[:MAX_SPANS][::-1], viewer(request.user).tenant_ids)
        return Response({"since": since, "is_cut": len(spans) > MAX_SPANS, "spans": seen})


def _seen(spans: list[Span], own: frozenset[int]) -> list[dict[str, Any]]:
    """Spans in order of their start, others' reduced to what TIMELINE_PRIVACY leaves."""
    labels: dict[int, str] = {}
    found = []
    for span in spans:
        tenant = span.task.tenant
        is_own = tenant.pk in own
        if tenant.pk not in labels:
            number = sum(pk not in own for pk in labels) + 1
            labels[tenant.pk] = tenant.name if is_own else _label(tenant.name, number)
        found.append(
            {
                "is_own": is_own,
                "tenant": labels[tenant.pk],
                "task": span.task_id if is_own else None,
                "task_name": span.task.name if is_own else None,
                "stage": span.stage if is_own else _stage(span.stage),
                "started_at": span.started_at,
                "ended_at": span.ended_at,
            }
        )
    return found


def _label(name: str, number: int) -> str:
    numbered = {"open": name, "anonymous": f"other tenant {number}", "own-only": "others"}
    return numbered[settings.TIMELINE_PRIVACY]


def _stage(stage: str) -> str:
    return IN_USE if settings.TIMELINE_PRIVACY == "own-only" else stage
