"""What a task waits for in detail, and when it may be done, worked out as it is asked."""

from __future__ import annotations

import math
from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from jobs.models import Task
from jobs.services.estimates import Range, told
from jobs.services.outlook import read_outlook
from jobs.services.waits import ORDER, Waiting

from .views import OwnedView, find


class RangeSerializer(serializers.Serializer[Any]):
    low_s = serializers.FloatField(help_text="seconds from now")
    high_s = serializers.FloatField(
        allow_null=True,
        help_text="seconds from now; four of five outcomes lie between, if things go on as lately;"
        " null: at least low_s, and nobody can say how much more",
    )
    text = serializers.CharField(
        help_text="the same for people, such as 1.2–1.6 h, up to 2 min, at least 40 s"
    )


class WaitingSerializer(serializers.Serializer[Any]):
    kind = serializers.ChoiceField(
        choices=ORDER,
        help_text="tool, grading, environment: with the environment; generation: with an engine;"
        " queue: on the way to either; dispatch: not sent yet",
    )
    tool = serializers.CharField(help_text="its name, of kind tool; else empty")
    num_trajectories = serializers.IntegerField()
    longest_s = serializers.FloatField(
        allow_null=True, help_text="seconds that one of them has waited for it; null: not known"
    )


class OutlookSerializer(serializers.Serializer[Any]):
    step = serializers.IntegerField(
        allow_null=True,
        help_text="number of the oldest step under way, from 0 as in steps/‹number›, where"
        " sentences for people count from 1; null: none",
    )
    waits = WaitingSerializer(
        many=True, help_text="what its unfinished trajectories wait for; empty once it is ready"
    )
    waiting_text = serializers.CharField(help_text="the same as a sentence")
    start = RangeSerializer(allow_null=True, help_text="of a queued task: until it may begin")
    step_done = RangeSerializer(allow_null=True, help_text="until that step is trained")
    task_done = RangeSerializer(allow_null=True, help_text="until all steps are trained")
    unknown_text = serializers.CharField(
        help_text="why start, or step_done or task_done, is null, as a sentence; else empty"
    )
    estimate_text = serializers.CharField(
        help_text="the ranges as a sentence, or why there are none; empty once the task is over"
    )


class TaskOutlook(OwnedView):
    """What a task waits for, and for how long. Estimates are null where nobody can say, such as
    while it is paused, and `unknown_text` says why; after its end all are."""

    rows = Task.objects.select_related("base_model")

    @extend_schema(responses=OutlookSerializer)
    def get(self, request: Request, task_id: Any) -> Response:
        """Worked out now; nothing of it is stored, so ask every few seconds at most."""
        found = read_outlook(find(self.rows, request, pk=task_id))
        return Response(
            {
                "step": found.step,
                "waits": [_waiting(wait) for wait in found.waits],
                "waiting_text": found.waiting,
                "start": _range(found.estimate.start),
                "step_done": _range(found.estimate.step),
                "task_done": _range(found.estimate.task),
                "unknown_text": found.estimate.unknown,
                "estimate_text": found.estimate.text,
            }
        )


def _waiting(wait: Waiting) -> dict[str, Any]:
    return {
        "kind": wait.kind,
        "tool": wait.tool,
        "num_trajectories": wait.num,
        "longest_s": None if wait.longest_s is None else round(wait.longest_s, 1),
    }


def _range(found: Range | None) -> dict[str, Any] | None:
    if found is None:
        return None
    return {
        "low_s": round(found.low_s, 1),
        "high_s": round(found.high_s, 1) if found.high_s < math.inf else None,
        "text": told(found),
    }
