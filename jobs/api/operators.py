"""For operators of the installation (staff): every tenant and its quotas."""

from __future__ import annotations

from typing import Any

from django.db.models import Count, Q
from django.http import Http404
from drf_spectacular.utils import extend_schema
from rest_framework import generics, serializers
from rest_framework.permissions import BasePermission, IsAuthenticated
from rest_framework.request import Request
from rest_framework.response import Response

from jobs.models import Task, Tenant
from jobs.services.tenants import QUOTAS, set_quotas

from .views import body_fields


class IsOperator(BasePermission):
    """Staff only; for everybody else these endpoints do not exist."""

    def has_permission(self, request: Request, view: Any) -> bool:
        """Raises: Http404 for others."""
        if not request.user.is_staff:
            raise Http404
        return True


class OperatedTenantSerializer(serializers.ModelSerializer[Tenant]):
    """Quotas have the limits and the help of their columns."""

    num_members = serializers.IntegerField(read_only=True)
    num_running = serializers.IntegerField(read_only=True, help_text="running or paused tasks")
    num_queued = serializers.IntegerField(read_only=True)

    class Meta:
        model = Tenant
        fields = ("slug", "name", *QUOTAS, "num_members", "num_running", "num_queued", "created_at")
        read_only_fields = ("slug", "name", "created_at")


class _Operated:
    permission_classes = (IsAuthenticated, IsOperator)
    serializer_class = OperatedTenantSerializer

    def get_queryset(self) -> Any:
        """Every tenant, with what it has."""
        running, queued = Q(tasks__state__in=Task.OCCUPYING), Q(tasks__state=Task.State.QUEUED)
        return Tenant.objects.annotate(
            num_members=Count("members", distinct=True),
            num_running=Count("tasks", filter=running, distinct=True),
            num_queued=Count("tasks", filter=queued, distinct=True),
        )


class OperatedTenants(_Operated, generics.ListAPIView[Tenant]):
    """All tenants of the installation."""

    ordering = ("slug",)


class OperatedTenant(_Operated, generics.RetrieveAPIView[Tenant]):
    """One tenant of the installation."""

    lookup_field = "slug"

    @extend_schema(request=OperatedTenantSerializer(partial=True))
    def patch(self, request: Request, slug: str) -> Response:
        """Change quotas; fields left out stay. 0 means no limit, except for weight and rank."""
        tenant = self.get_object()
        wanted = body_fields(request, QUOTAS)
        changes = OperatedTenantSerializer(tenant, data=wanted, partial=True)
        changes.is_valid(raise_exception=True)
        set_quotas(tenant, changes.validated_data, by=request.user)
        return Response(OperatedTenantSerializer(self.get_object()).data)
