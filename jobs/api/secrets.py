"""Secrets of one's tenants. A value goes in and never comes out."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from jobs.models import Secret, Task
from jobs.services.secrets import (
    MAX_HOST_CHARACTERS,
    MAX_NAME_CHARACTERS,
    MAX_VALUE_CHARACTERS,
    change_secret,
    delete_secret,
    save_secret,
    tasks_using,
)
from jobs.services.tenants import choose_tenant

from .views import OwnedList, OwnedView, body_fields, find


class SecretSerializer(serializers.ModelSerializer[Secret]):
    """All that is told of a secret: `sealed` is none of these fields, and must never be."""

    tenant = serializers.SlugRelatedField(slug_field="slug", read_only=True)
    created_by = serializers.StringRelatedField()

    class Meta:
        model = Secret
        fields = (
            *("id", "tenant", "name", "host"),
            *("created_by", "created_at", "changed_at", "last_used_at"),
        )


class UsingTaskSerializer(serializers.ModelSerializer[Task]):
    class Meta:
        model = Task
        fields = ("id", "name", "state")


class SecretDetailSerializer(SecretSerializer):
    tasks = UsingTaskSerializer(many=True, help_text="not over yet, that name it")

    class Meta(SecretSerializer.Meta):
        fields = (*SecretSerializer.Meta.fields, "tasks")


class DeletedSerializer(serializers.Serializer[Any]):
    tasks = UsingTaskSerializer(many=True, help_text="not over yet, that will miss it")


class NewSecretSerializer(serializers.Serializer[Any]):
    name = serializers.CharField(max_length=MAX_NAME_CHARACTERS, help_text="to ask for it by")
    host = serializers.CharField(
        max_length=MAX_HOST_CHARACTERS, help_text="the only one that it is sent to: api.example.com"
    )
    value = serializers.CharField(max_length=MAX_VALUE_CHARACTERS, help_text="never shown again")
    tenant = serializers.CharField(required=False, help_text="slug; not needed if in one only")


class SecretChangeSerializer(serializers.Serializer[Any]):
    value = serializers.CharField(max_length=MAX_VALUE_CHARACTERS)
    host = serializers.CharField(
        max_length=MAX_HOST_CHARACTERS, required=False, help_text="as it is, if absent"
    )


ROWS = Secret.objects.select_related("tenant", "created_by").defer("sealed")


class Secrets(OwnedList):
    """The secrets of one's tenants, without their values."""

    rows = ROWS
    ordering = ("name", "id")
    serializer_class = SecretSerializer

    @extend_schema(request=NewSecretSerializer, responses={201: SecretSerializer})
    def post(self, request: Request) -> Response:
        """Save one."""
        fields = body_fields(request, ("name", "host", "value", "tenant"))
        secret = save_secret(
            tenant=choose_tenant(request.user, fields.get("tenant")),
            user=request.user,
            name=fields.get("name"),
            host=fields.get("host"),
            value=fields.get("value"),
        )
        return Response(SecretSerializer(secret).data, status=201)


class SecretDetail(OwnedView):
    """One secret."""

    rows = ROWS
    serializer_class = SecretDetailSerializer

    @extend_schema(responses=SecretDetailSerializer)
    def get(self, request: Request, secret_id: Any) -> Response:
        """What it is for, and which tasks name it."""
        return Response(_plain(find(self.rows, request, pk=secret_id)))

    @extend_schema(request=SecretChangeSerializer, responses=SecretDetailSerializer)
    def patch(self, request: Request, secret_id: Any) -> Response:
        """Give it another value, and another host; the host never changes without a new value."""
        secret = find(self.rows, request, pk=secret_id)
        fields = body_fields(request, ("value", "host"))
        changed = change_secret(
            secret, request.user, value=fields.get("value"), host=fields.get("host")
        )
        return Response(_plain(changed))

    @extend_schema(responses={200: DeletedSerializer})
    def delete(self, request: Request, secret_id: Any) -> Response:
        """Delete it; workers that have it forget it within a minute."""
        secret = find(self.rows, request, pk=secret_id)
        tasks = delete_secret(secret, request.user)
        return Response({"tasks": UsingTaskSerializer(tasks, many=True).data})


def _plain(secret: Secret) -> dict[str, Any]:
    tasks = UsingTaskSerializer(tasks_using(secret), many=True).data
    return {**SecretSerializer(secret).data, "tasks": tasks}
