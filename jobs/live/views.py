"""Snapshots over HTTP."""

from __future__ import annotations

import uuid

from django.http import Http404
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from jobs.api.views import whole_number, whole_parameter
from jobs.models import Task

from .snapshots import task_snapshot
from .timeline import viewer

MAX_BUCKETS = 5_000


class TaskSnapshotView(APIView):
    """What a task's page draws, with the positions from which its streams go on."""

    @extend_schema(
        responses={200: OpenApiTypes.OBJECT},
        parameters=[whole_parameter("buckets", "points a curve", 1, MAX_BUCKETS)],
    )
    def get(self, request: Request, task_id: uuid.UUID) -> Response:
        """404 for an unknown task and for another tenant's alike."""
        task = Task.objects.for_user(request.user).filter(pk=task_id).first()
        if task is None:
            raise Http404
        buckets = whole_number(request, "buckets", 1200, 1, MAX_BUCKETS)
        return Response(task_snapshot(task, viewer(request.user), buckets))
