"""A task's events after a cursor: what the live pages read, for those who poll."""

from __future__ import annotations

import uuid
from typing import Any

from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.exceptions import ValidationError
from rest_framework.request import Request
from rest_framework.response import Response

from jobs.models import StreamEvent, Task
from jobs.services.events import events_since, position

from .views import OwnedView, whole_number, whole_parameter

MAX_EVENTS = 500
MAX_NUMBER = 2**53


class EventSerializer(serializers.ModelSerializer[StreamEvent]):
    data = serializers.DictField()

    class Meta:
        model = StreamEvent
        fields = ("seq", "kind", "data", "at")


class EventsSerializer(serializers.Serializer[Any]):
    epoch = serializers.UUIDField(help_text="changes when history is rewritten")
    head = serializers.IntegerField(help_text="number of the last event there is")
    reset = serializers.CharField(
        help_text="why the cursor is of no use (epoch, too_old): read the task anew, then go on"
        " from this epoch and head; else empty"
    )
    events = EventSerializer(many=True)


class TaskEvents(OwnedView):
    """Events of a task, in order, without gaps."""

    rows = Task.objects.all()

    @extend_schema(
        responses=EventsSerializer,
        parameters=[
            OpenApiParameter("epoch", uuid.UUID, description="of the cursor; absent: the present"),
            whole_parameter("since", "number of the last event known", 0, MAX_NUMBER),
            whole_parameter("limit", "events", 1, MAX_EVENTS),
        ],
    )
    def get(self, request: Request, task_id: Any) -> Response:
        """The events after the cursor (epoch, since)."""
        stream = self.get_task().stream
        since = whole_number(request, "since", 0, 0, MAX_NUMBER)
        limit = whole_number(request, "limit", MAX_EVENTS, 1, MAX_EVENTS)
        epoch = _epoch(request) or position(stream)[0]
        chunk = events_since(stream, epoch, since, limit)
        return Response(EventsSerializer(chunk).data)


def _epoch(request: Request) -> str:
    value = request.query_params.get("epoch", "")
    try:
        return str(uuid.UUID(value)) if value else ""
    except ValueError:
        raise ValidationError({"epoch": ["Must be the epoch of an earlier answer."]}) from None
