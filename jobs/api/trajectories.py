"""Trajectories of a group, whole: enough to recompute every reward and every loss term."""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.utils.urls import replace_query_param

from engine.errors import ArtifactError
from engine.types import Trajectory, unpack_floats, unpack_ids
from jobs.models import Group
from jobs.services.payloads import read_group, read_prompt

from .views import OwnedView, find, whole_number, whole_parameter

MAX_TRAJECTORIES = 128
MAX_START = 10**6


class ToolCallSerializer(serializers.Serializer[Any]):
    name = serializers.CharField(help_text="as the policy wrote it")
    arguments = serializers.CharField(help_text="as the policy wrote them, cut")
    error = serializers.CharField(help_text="why there was no result")
    duration_s = serializers.FloatField()


class TurnSerializer(serializers.Serializer[Any]):
    start = serializers.IntegerField(help_text="index in prompt and completion together")
    end = serializers.IntegerField()
    digest = serializers.CharField()
    finish_reason = serializers.CharField()
    started_at = serializers.FloatField(help_text="epoch s")
    finished_at = serializers.FloatField(help_text="epoch s")
    observation = serializers.CharField()
    worker = serializers.CharField(help_text="that generated it")
    calls = ToolCallSerializer(many=True)


class TrajectorySerializer(serializers.Serializer[Any]):
    index = serializers.IntegerField()
    attempt = serializers.IntegerField()
    version = serializers.IntegerField(help_text="policy version that generated it")
    step = serializers.IntegerField(
        help_text="that is trained on it; step - version is its staleness"
    )
    digest = serializers.CharField(help_text="of that version's adapter")
    row = serializers.DictField(
        allow_null=True, help_text="of the dataset: messages and reference columns"
    )
    prompt_ids = serializers.ListField(child=serializers.IntegerField())
    text = serializers.CharField(help_text="decoded completion, as graded")
    completion_ids = serializers.ListField(child=serializers.IntegerField())
    logprobs = serializers.ListField(child=serializers.FloatField(allow_null=True))
    mask = serializers.ListField(child=serializers.IntegerField(), help_text="1: trained on")
    turns = TurnSerializer(many=True)
    stop_reason = serializers.CharField()
    reward = serializers.FloatField(allow_null=True, help_text="weighted sum; null: ungraded")
    rewards = serializers.DictField(child=serializers.FloatField(allow_null=True))
    error = serializers.CharField(help_text="why it is ungraded")
    graders_digest = serializers.CharField(
        help_text="of the reward functions that scored it; empty: from before it was noted"
    )


class TrajectoriesSerializer(serializers.Serializer[Any]):
    next = serializers.URLField(allow_null=True)
    num_trajectories = serializers.IntegerField(help_text="of the group; 0 until it is finished")
    results = TrajectorySerializer(many=True)


class Trajectories(OwnedView):
    """The trajectories of a finished group; none while it is under way."""

    rows = Group.objects.select_related("step__task")

    @extend_schema(
        responses=TrajectoriesSerializer,
        parameters=[
            whole_parameter("start", "index of the first", 0, MAX_START),
            whole_parameter("limit", "trajectories", 1, MAX_TRAJECTORIES),
        ],
    )
    def get(self, request: Request, group_id: Any) -> Response:
        """In order of their index."""
        group = find(self.rows, request, pk=group_id)
        start = whole_number(request, "start", 0, 0, MAX_START)
        limit = whole_number(request, "limit", MAX_TRAJECTORIES, 1, MAX_TRAJECTORIES)
        trajectories = read_group(group)
        row = _row(group) if trajectories else None
        end = start + limit
        url = replace_query_param(request.build_absolute_uri(), "start", end)
        return Response(
            {
                "next": url if end < len(trajectories) else None,
                "num_trajectories": len(trajectories),
                "results": [_plain(item, row) for item in trajectories[start:end]],
            }
        )


def _row(group: Group) -> dict[str, Any] | None:
    """The dataset's row of the group's prompt, while the tokenised prompts are stored."""
    try:
        return read_prompt(group.step.task.prompts_key, group.prompt_index)["row"]
    except ArtifactError:
        return None


def _plain(item: Trajectory, row: dict[str, Any] | None) -> dict[str, Any]:
    ids = unpack_ids(item.ids)
    return {
        "index": item.key.index,
        "attempt": item.key.attempt,
        "version": item.version,
        "step": item.key.step,
        "digest": item.digest,
        "row": row,
        "prompt_ids": ids[: item.prompt_length],
        "text": item.text,
        "completion_ids": ids[item.prompt_length :],
        "logprobs": [_finite(value) for value in unpack_floats(item.logprobs)],
        "mask": list(item.mask),
        "turns": [asdict(turn) for turn in item.turns],
        "stop_reason": item.stop_reason,
        "reward": item.reward,
        "rewards": item.rewards,
        "error": item.error,
        "graders_digest": item.graders_digest,
    }


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
