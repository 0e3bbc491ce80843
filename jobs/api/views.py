"""What all endpoints share: rows are found among the user's own tenants, or not at all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, TypeVar

from django.db.models import QuerySet
from django.http import Http404
from django.http.response import HttpResponseBase
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import generics
from rest_framework.exceptions import ValidationError
from rest_framework.renderers import JSONRenderer
from rest_framework.request import Request
from rest_framework.views import APIView

from engine.parameters import shown, unknown
from jobs.models import Task
from jobs.models.tenancy import TenantQuerySet

Rows = TypeVar("Rows", bound=QuerySet[Any])


class OwnedView(generics.GenericAPIView):
    """A view on rows of a model that belongs to tenants: `rows` is never used unfiltered."""

    rows: ClassVar[TenantQuerySet]
    ordering: ClassVar[tuple[str, ...]] = ()

    def get_queryset(self) -> Any:
        """The rows of the user's tenants that the URL asks for."""
        if getattr(self, "swagger_fake_view", False):  # the document is written without a user
            return self.rows.none()
        return self.narrow(self.rows.for_user(self.request.user))

    def narrow(self, rows: Any) -> Any:
        """Below a task, the rows of that task. Raises: Http404."""
        return rows.filter(task=self.get_task()) if "task_id" in self.kwargs else rows

    def get_task(self) -> Task:
        """The task of the URL. Raises: Http404."""
        return find(Task.objects.select_related("tenant"), self.request, pk=self.kwargs["task_id"])


class OwnedList(OwnedView, generics.ListAPIView):
    """A paged list of such rows."""


def find(rows: Any, request: Request, **lookup: Any) -> Any:
    """The row of the user's tenants. Raises: Http404 for unknown and foreign ones alike."""
    found = rows.for_user(request.user).filter(**lookup).first()
    if found is None:
        raise Http404
    return found


def whole_number(request: Request, name: str, default: int, low: int, high: int) -> int:
    """A whole number from the query. Raises: ValidationError on `name`."""
    value = request.query_params.get(name, str(default))
    if value.isascii() and value.isdigit() and len(value) < 19 and low <= int(value) <= high:
        return int(value)
    message = f"Must be a whole number from {low:,} to {high:,}, not {shown(value)}."
    raise ValidationError({name: [message]})


def whole_parameter(name: str, help: str, low: int, high: int) -> OpenApiParameter:
    """What the document tells of such a number."""
    kind = {"type": "integer", "minimum": low, "maximum": high}
    return OpenApiParameter(name, kind, description=help)


def body_fields(request: Request, known: tuple[str, ...]) -> dict[str, Any]:
    """The JSON object, or the form, of the body.

    Every view that writes reads its fields through this, so that none is ignored in silence.
    Raises: ValidationError naming fields that do not exist.
    """
    data = request.data if request.data != "" else {}
    if not isinstance(data, dict):
        raise ValidationError({"body": [f"Must be an object, not {shown(data)}."]})
    refuse_unknown(data, known)
    return data


def refuse_unknown(fields: Mapping[str, Any], known: Sequence[str], path: str = "") -> None:
    """Raises: ValidationError naming fields that do not exist; path: of the object they are in."""
    wrong = [key for key in fields if key not in known]
    if wrong:
        there_are = f"There are {', '.join(known)}." if known else "None is taken here."
        start = f"{path}." if path else ""
        raise ValidationError(
            {
                f"{start}{key[:100]}": [f"{unknown('field', key, known, {})} {there_are}"]
                for key in wrong[:20]
            }
        )


class JSONErrors(APIView):
    """For views that answer in other formats: their failures are JSON all the same."""

    def finalize_response(
        self, request: Request, response: HttpResponseBase, *args: Any, **kwargs: Any
    ) -> HttpResponseBase:
        """The response, rendered as JSON if it tells of a failure."""
        if getattr(response, "exception", False):
            request.accepted_renderer = JSONRenderer()
            request.accepted_media_type = JSONRenderer.media_type
        return super().finalize_response(request, response, *args, **kwargs)


@extend_schema(exclude=True)
class Unknown(APIView):
    """Every path that is no endpoint: 404 in the shape of all errors."""

    def get(self, request: Request, **_: Any) -> None:
        """Always 404."""
        raise Http404

    post = put = patch = delete = get
