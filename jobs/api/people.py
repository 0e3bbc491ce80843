"""Who one is, which tenants one is in, and what they use."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from jobs.models import Member, User
from jobs.models.tenant import WEIGHT_MEANING
from jobs.services.tasks import quota_use
from jobs.services.tenants import choose_tenant

from .views import OwnedList


class MembershipSerializer(serializers.ModelSerializer[Member]):
    slug = serializers.CharField(source="tenant.slug")
    name = serializers.CharField(source="tenant.name")
    is_suspended = serializers.BooleanField(source="tenant.is_suspended")

    class Meta:
        model = Member
        fields = ("slug", "name", "role", "is_suspended")


class UserSerializer(serializers.ModelSerializer[User]):
    tenants = MembershipSerializer(many=True, source="memberships")

    class Meta:
        model = User
        fields = ("id", "email", "is_staff", "tenants")


class UseSerializer(serializers.Serializer[Any]):
    used = serializers.IntegerField(allow_null=True)
    limit = serializers.IntegerField(allow_null=True, help_text="null: no limit")
    unit = serializers.CharField()


class QuotaSerializer(serializers.Serializer[Any]):
    tenant = serializers.CharField()
    weight = serializers.FloatField(help_text=WEIGHT_MEANING)
    concurrent_tasks = UseSerializer()
    queued_tasks = UseSerializer()
    tokens_today = UseSerializer()
    step_tokens = UseSerializer()
    stored_mib = UseSerializer()
    lora_rank = UseSerializer()


class Me(APIView):
    """The user of the token or session."""

    @extend_schema(responses=UserSerializer)
    def get(self, request: Request) -> Response:
        """With the tenants one is a member of."""
        users = User.objects.prefetch_related("memberships__tenant")
        return Response(UserSerializer(users.get(pk=request.user.pk)).data)


class Tenants(OwnedList):
    """The tenants one is a member of, with one's role."""

    rows = Member.objects.select_related("tenant")
    ordering = ("tenant__slug",)
    serializer_class = MembershipSerializer

    def narrow(self, rows: Any) -> Any:
        """One's own memberships, not those of others in the same tenants."""
        return rows.filter(user=self.request.user)


class Quota(APIView):
    """What a tenant uses of what it may."""

    @extend_schema(
        responses=QuotaSerializer,
        parameters=[OpenApiParameter("tenant", str, description="slug; not needed if in one only")],
    )
    def get(self, request: Request) -> Response:
        """Numbers with their units and limits."""
        tenant = choose_tenant(request.user, request.query_params.get("tenant"))
        return Response({"tenant": tenant.slug, "weight": tenant.weight, **quota_use(tenant)})
