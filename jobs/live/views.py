"""Snapshots over HTTP."""

from __future__ import annotations

import uuid
from typing import Any

from django.http import Http404
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework.exceptions import ValidationError
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from jobs.models import Task

from .snapshots import task_snapshot
from .timeline import viewer

MAX_BUCKETS = 5_000


class TaskSnapshotView(APIView):
    """What a task's page draws, with the positions from which its streams go on."""

    @extend_schema(
        responses={200: OpenApiTypes.OBJECT},
        parameters=[OpenApiParameter("buckets", int, description="points a curve, 1 to 5000")],
    )
    def get(self, request: Request, task_id: uuid.UUID) -> Response:
        """404 for an unknown task and for another tenant's alike."""
        task = Task.objects.for_user(request.user).filter(pk=task_id).first()
        if task is None:
            raise Http404
        return Response(task_snapshot(task, viewer(request.user), _buckets(request)))


def _buckets(request: Request) -> int:
    text: Any = request.query_params.get("buckets", "1200")
    if not (text.isascii() and text.isdigit() and 1 <= int(text[:9]) <= MAX_BUCKETS):
        raise ValidationError({"buckets": [f"Must be a whole number from 1 to {MAX_BUCKETS}."]})
    return int(text)
