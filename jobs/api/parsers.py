"""Request bodies: bounded before they are read, strict about what is JSON."""

from __future__ import annotations

from collections.abc import Mapping
from typing import IO, Any

from django.conf import settings
from rest_framework.exceptions import APIException, ParseError
from rest_framework.parsers import BaseParser, MultiPartParser
from rest_framework.renderers import JSONRenderer

from jobs import strict_json

MAX_JSON_BYTES = 2**20
FORM_OVERHEAD_BYTES = 2**20  # boundaries and the other fields of a form with a file


class BodyTooLarge(APIException):
    """The request's body is larger than its endpoint takes."""

    status_code = 413
    default_code = "too_large"

    def __init__(self, limit: int) -> None:
        super().__init__(f"The request may have at most {limit // 2**20} MiB.")


class StrictJSONParser(BaseParser):
    """JSON in UTF-8, at most 1 MiB."""

    media_type = "application/json"
    renderer_class = JSONRenderer

    def parse(
        self,
        stream: IO[bytes],
        media_type: str | None = None,
        parser_context: Mapping[str, Any] | None = None,
    ) -> Any:
        """The body's value. Raises: ParseError, BodyTooLarge."""
        body = stream.read(MAX_JSON_BYTES + 1)
        if len(body) > MAX_JSON_BYTES:
            raise BodyTooLarge(MAX_JSON_BYTES)
        try:
            return strict_json.loads(body.decode())
        except UnicodeDecodeError as error:
            raise ParseError(f"The body is not UTF-8 at byte {error.start}.") from None
        except strict_json.JSONProblem as error:
            raise ParseError(str(error)) from None


class UploadParser(MultiPartParser):
    """A form with a file, refused before it is read if it is too large."""

    def parse(
        self,
        stream: Any,
        media_type: str | None = None,
        parser_context: Mapping[str, Any] | None = None,
    ) -> Any:
        """Fields and files. Raises: ParseError, BodyTooLarge."""
        assert parser_context is not None
        limit = settings.MAX_UPLOAD_MIB * 2**20 + FORM_OVERHEAD_BYTES
        if int(parser_context["request"].META.get("CONTENT_LENGTH") or 0) > limit:
            raise BodyTooLarge(limit)
        return super().parse(stream, media_type, parser_context)
