"""What is known of a dataset's prompts: their lengths, and those that another has too."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from django.core.exceptions import ValidationError
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from engine.errors import SpecError
from jobs.models import Dataset
from jobs.services.base_models import find_base_model
from jobs.services.dataset_overlap import shared_prompts
from jobs.services.prompt_lengths import measure_lengths

from .views import OwnedView, find, whole_number, whole_parameter

MAX_COMPARED_ROWS = 300_000


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
    except (ValueError, ValidationError):
        found = None
    if found is None:
        raise SpecError({"other": ["There is no such dataset; give the id of one."]})
    return found
