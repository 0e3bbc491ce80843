"""One's own API tokens: made with a name and an expiry, shown once, listed, revoked."""

from __future__ import annotations

from typing import Any

from django.http import Http404
from drf_spectacular.utils import extend_schema
from knox.models import AuthToken
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.settings import api_settings
from rest_framework.views import APIView

from jobs.models import TokenLabel
from jobs.services.accounts import DEFAULT_DAYS, make_token, revoke_token

from .throttles import NewTokens
from .views import body_fields

MAX_DAYS = 365


class TokenSerializer(serializers.Serializer[Any]):
    id = serializers.UUIDField()
    name = serializers.CharField()
    start = serializers.CharField(help_text="its first characters, to recognise it")
    created_at = serializers.DateTimeField()
    expires_at = serializers.DateTimeField(allow_null=True)


class NewTokenSerializer(serializers.Serializer[Any]):
    """What to call a token, and how long it lives."""

    name = serializers.CharField(max_length=100)
    expires_in_days = serializers.IntegerField(
        min_value=1, max_value=MAX_DAYS, default=DEFAULT_DAYS
    )


class MadeTokenSerializer(TokenSerializer):
    token = serializers.CharField(help_text="shown this once: Authorization: Token <token>")


class Tokens(APIView):
    """One's own tokens."""

    throttle_classes = [*api_settings.DEFAULT_THROTTLE_CLASSES, NewTokens]

    @extend_schema(responses=TokenSerializer(many=True))
    def get(self, request: Request) -> Response:
        """All of them, newest first."""
        tokens = AuthToken.objects.filter(user=request.user).order_by("-created")
        labels = {label.digest: label for label in request.user.token_labels.all()}
        return Response(
            [_plain(token, labels[token.digest]) for token in tokens if token.digest in labels]
        )

    @extend_schema(request=NewTokenSerializer, responses={201: MadeTokenSerializer})
    def post(self, request: Request) -> Response:
        """Make one. The answer is the only place where the token itself is shown."""
        fields = body_fields(request, ("name", "expires_in_days"))
        wanted = NewTokenSerializer(data=fields)
        wanted.is_valid(raise_exception=True)
        values = wanted.validated_data
        token, label, secret = make_token(request.user, values["name"], values["expires_in_days"])
        return Response({**_plain(token, label), "token": secret}, status=201)


class TokenDetail(APIView):
    """One of one's tokens."""

    @extend_schema(responses={204: None})
    def delete(self, request: Request, token_id: Any) -> Response:
        """Revoke it: it opens nothing from now on."""
        if not revoke_token(request.user, token_id):
            raise Http404
        return Response(status=204)


def _plain(token: AuthToken, label: TokenLabel) -> dict[str, Any]:
    return {
        "id": label.pk,
        "name": label.name,
        "start": token.token_key,
        "created_at": token.created,
        "expires_at": token.expiry,
    }
