"""Every failure of the API has one shape, whatever failed:

    {"code": "invalid", "message": "2 fields are wrong.", "fields": {"config.lora_rank": ["…"]}}

| status | code | when |
|---|---|---|
| 400 | `invalid` | fields are wrong: see `fields`, by path such as `graders.0.pattern` |
| 400 | `invalid_dataset` | rows are wrong: see `lines` [{line, message}] and `num_bad_lines` |
| 400 | `parse_error` | not JSON, not a form, not a cursor |
| 401 | `not_authenticated`, `authentication_failed` | no token, or no valid one |
| 403 | `permission_denied` | a member whose role does not allow it |
| 404 | `not_found` | no such object, or another tenant's: never told apart |
| 405, 406, 415 | `method_not_allowed`, `not_acceptable`, `unsupported_media_type` | |
| 409 | `conflict` | the task's state, or an Idempotency-Key, stands against it |
| 410 | `gone` | its files were cleaned up |
| 413 | `too_large` | |
| 429 | `throttled`, `quota` | too many requests (see Retry-After), or a quota is used up |
| 503 | `unavailable` | no worker answers that could; the message says what to do |
| 500 | `server_error` | ours: the message has an id that the operator's log has too |
"""

from __future__ import annotations

import logging
import uuid
from typing import Any

from django.core.exceptions import PermissionDenied, RequestDataTooBig, SuspiciousOperation
from django.core.signals import got_request_exception
from django.http import Http404
from rest_framework import exceptions
from rest_framework.response import Response
from rest_framework.views import set_rollback

from engine.errors import ArtifactError, DatasetError, QuotaError, SpecError
from jobs.services.errands import ErrandError
from jobs.services.tasks import ConflictError

log = logging.getLogger(__name__)

NOT_FOUND = "There is no such object, or it belongs to another tenant."


def exception_handler(error: Exception, context: dict[str, Any]) -> Response:
    """The response for anything that a view raised."""
    set_rollback()
    if isinstance(error, exceptions.APIException):
        return _of_framework(error)
    if isinstance(error, DatasetError):
        return _of_dataset(error)
    if isinstance(error, SpecError):
        return _invalid(error.fields)
    for kind, status, code, message in _PLAIN:
        if isinstance(error, kind):
            return _response(status, code, message or str(error))
    return _of_ours(error, context)


_PLAIN: list[tuple[type[Exception], int, str, str]] = [
    (Http404, 404, "not_found", NOT_FOUND),
    (PermissionDenied, 403, "permission_denied", ""),
    (ConflictError, 409, "conflict", ""),
    (QuotaError, 429, "quota", ""),
    (ErrandError, 503, "unavailable", ""),
    (ArtifactError, 410, "gone", "Its files are not in the artifact store any more."),
    (RequestDataTooBig, 413, "too_large", "The request is too large."),
    (SuspiciousOperation, 400, "parse_error", "The request could not be read."),
]


def _response(status: int, code: str, message: str, **more: Any) -> Response:
    return Response({"code": code, "message": message, **more}, status=status)


def _of_framework(error: exceptions.APIException) -> Response:
    if isinstance(error, exceptions.ValidationError):
        return _invalid(_flat(error.detail))
    if isinstance(error, exceptions.NotFound):
        return _response(404, "not_found", NOT_FOUND)
    codes = error.get_codes()
    code = codes if isinstance(codes, str) else "invalid"
    response = _response(error.status_code, code, str(error.detail))
    if header := getattr(error, "auth_header", None):
        response["WWW-Authenticate"] = header
    if wait := getattr(error, "wait", None):
        response["Retry-After"] = f"{wait:.0f}"
    return response


def _invalid(fields: dict[str, list[str]]) -> Response:
    count = "1 field is wrong." if len(fields) == 1 else f"{len(fields)} fields are wrong."
    return _response(400, "invalid", count, fields=fields)


def _of_dataset(error: DatasetError) -> Response:
    lines = [{"line": line, "message": message} for line, message in error.lines]
    return _response(
        400,
        "invalid_dataset",
        str(error),
        fields={"file": [str(error)]},
        lines=lines,
        num_bad_lines=error.num_bad_lines,
    )


def _of_ours(error: Exception, context: dict[str, Any]) -> Response:
    """A fault of this program: told by an id only, and logged whole."""
    incident = uuid.uuid4().hex[:12]
    request = context.get("request")
    log.error("incident %s", incident, exc_info=error)
    got_request_exception.send(sender=None, request=getattr(request, "_request", None))
    return _response(500, "server_error", f"This is a fault of the service (id {incident}).")


def _flat(detail: Any, path: str = "") -> dict[str, list[str]]:
    """Nested errors of a serializer to messages by dotted path."""
    if isinstance(detail, dict):
        found: dict[str, list[str]] = {}
        for key, value in detail.items():
            name = "" if key == "non_field_errors" else str(key)
            found.update(_flat(value, ".".join(part for part in (path, name) if part)))
        return found
    if isinstance(detail, list) and any(isinstance(item, (dict, list)) for item in detail):
        return _flat({place: item for place, item in enumerate(detail) if item}, path)
    messages = detail if isinstance(detail, list) else [detail]
    return {path or "body": [str(message) for message in messages]}
