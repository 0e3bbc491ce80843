"""What can be chosen for a task: base models, reward functions, settings."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework import generics, serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from engine.config import TaskConfig
from engine.parameters import describe
from engine.rewards import catalogue
from jobs.models import BaseModel
from jobs.services.base_models import offered_base_models


class BaseModelSerializer(serializers.ModelSerializer[BaseModel]):
    class Meta:
        model = BaseModel
        fields = ("slug", "name", "dtype", "max_model_length")


class ParameterSerializer(serializers.Serializer[Any]):
    name = serializers.CharField()
    type = serializers.CharField()
    default = serializers.JSONField()
    help = serializers.CharField()
    low = serializers.FloatField(required=False, help_text="smallest value")
    above = serializers.FloatField(required=False, help_text="values must be larger")
    high = serializers.FloatField(required=False, help_text="largest value")
    choices = serializers.ListField(child=serializers.CharField(), required=False)
    max_length = serializers.IntegerField(required=False, help_text="characters")


class RewardFunctionSerializer(serializers.Serializer[Any]):
    type = serializers.CharField()
    help = serializers.CharField()
    parameters = ParameterSerializer(many=True)


class BaseModels(generics.ListAPIView[BaseModel]):
    """Base models that take new tasks."""

    serializer_class = BaseModelSerializer
    ordering = ("slug",)

    def get_queryset(self) -> Any:
        """Those that are enabled."""
        return offered_base_models()


class RewardFunctions(APIView):
    """Reward functions with their parameters."""

    @extend_schema(responses=RewardFunctionSerializer(many=True))
    def get(self, request: Request) -> Response:
        """All of them; each also takes `name` and `weight`."""
        return Response(catalogue())


class Settings(APIView):
    """Settings of a task (`config`) with their defaults and limits."""

    @extend_schema(responses=ParameterSerializer(many=True))
    def get(self, request: Request) -> Response:
        """All of them."""
        return Response(describe(TaskConfig))
