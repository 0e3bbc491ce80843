"""Lists come in pages with a cursor, so rows that arrive meanwhile neither repeat nor vanish."""

from __future__ import annotations

from typing import Any

from django.core.exceptions import ValidationError
from django.db import DataError
from django.db.models import QuerySet
from rest_framework.exceptions import NotFound, ParseError
from rest_framework.pagination import CursorPagination
from rest_framework.request import Request


class Page(CursorPagination):
    """`?cursor=` from the last page's `next`, `?page_size=` up to 200.

    A view names its `ordering`: a field that (nearly) never repeats comes first.
    """

    page_size = 50
    max_page_size = 200
    page_size_query_param = "page_size"

    def get_ordering(self, request: Request, queryset: Any, view: Any) -> tuple[str, ...]:
        """The view's ordering."""
        return tuple(view.ordering)

    def get_schema_operation_parameters(self, view: Any) -> list[dict[str, Any]]:
        """The query's parameters, with their limits."""
        parameters = super().get_schema_operation_parameters(view)
        for parameter in parameters:
            if parameter["name"] == self.page_size_query_param:
                parameter["schema"] |= {"minimum": 1, "maximum": self.max_page_size}
        return parameters

    def paginate_queryset(
        self, queryset: QuerySet[Any], request: Request, view: Any = None
    ) -> list[Any] | None:
        """A page. Raises: ParseError if the cursor is not one that we made."""
        size = request.query_params.get(self.page_size_query_param, "50")
        if not (size.isascii() and size.isdigit() and 1 <= int(size[:6]) <= self.max_page_size):
            raise ParseError(f"page_size must be a whole number from 1 to {self.max_page_size}.")
        try:
            return super().paginate_queryset(queryset, request, view)
        except (NotFound, ValidationError, DataError, ValueError, TypeError, OverflowError):
            raise ParseError("cursor must be taken from the `next` of a page.") from None
