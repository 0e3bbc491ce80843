"""The OpenAPI document: parts that the serializers cannot tell by themselves."""

from __future__ import annotations

from typing import Any

from csp.constants import SELF, UNSAFE_INLINE
from csp.decorators import csp_update
from django.utils.decorators import method_decorator
from drf_spectacular.extensions import OpenApiAuthenticationExtension
from drf_spectacular.utils import extend_schema_field
from drf_spectacular.views import SpectacularAPIView, SpectacularSwaggerSplitView
from rest_framework import serializers

from engine.config import TaskConfig
from engine.parameters import describe
from engine.rewards import GRADERS

from . import errors
from .views import JSONErrors

ERROR = {
    "type": "object",
    "required": ["code", "message"],
    "properties": {
        "code": {"type": "string", "description": "one of the table above"},
        "message": {"type": "string"},
        "fields": {
            "type": "object",
            "description": "messages by dotted path of the field",
            "additionalProperties": {"type": "array", "items": {"type": "string"}},
        },
        "lines": {
            "type": "array",
            "description": "bad lines of an upload, the first hundred",
            "items": {
                "type": "object",
                "properties": {"line": {"type": "integer"}, "message": {"type": "string"}},
            },
        },
        "num_bad_lines": {"type": "integer"},
    },
}


def _property(parameter: dict[str, Any]) -> dict[str, Any]:
    """A parameter's JSON schema."""
    found = {"type": parameter["type"], "description": parameter["help"]}
    found["default"] = parameter["default"]
    if parameter["type"] == "array":
        return {**found, "items": {"type": "string", "enum": parameter["choices"]}}
    names = {"low": "minimum", "above": "minimum", "high": "maximum", "choices": "enum"}
    found.update({names[key]: parameter[key] for key in names if key in parameter})
    if "above" in parameter:
        found["exclusiveMinimum"] = True
    if "max_length" in parameter:
        found["maxLength"] = parameter["max_length"]
    return found


def _properties(cls: type) -> dict[str, Any]:
    return {parameter["name"]: _property(parameter) for parameter in describe(cls)}


def _grader(kind: str) -> dict[str, Any]:
    return {
        "type": "object",
        "title": kind,
        "required": ["type"],
        "additionalProperties": False,
        "properties": {
            "type": {"type": "string", "enum": [kind]},
            "name": {"type": "string", "maxLength": 50, "default": kind},
            "weight": {"type": "number", "minimum": -1000, "maximum": 1000, "default": 1},
            **_properties(GRADERS[kind]),
        },
    }


SAVED = {
    "type": "object",
    "title": "saved",
    "description": "A reward function that was saved: the task gets a copy of the version.",
    "required": ["type", "grader"],
    "additionalProperties": False,
    "properties": {
        "type": {"type": "string", "enum": ["saved"]},
        "grader": {"type": "string", "maxLength": 50, "description": "its name"},
        "version": {"type": "integer", "minimum": 1, "description": "the newest, if absent"},
        "name": {"type": "string", "maxLength": 50, "description": "the grader's, if absent"},
        "weight": {"type": "number", "minimum": -1000, "maximum": 1000, "default": 1},
    },
}


@extend_schema_field(
    {
        "type": "object",
        "description": "Settings; absent ones take their default. Aliases of other tools are"
        " accepted where they mean the same.",
        "properties": _properties(TaskConfig),
    }
)
class ConfigField(serializers.JSONField):
    """A task's settings (engine.config)."""


@extend_schema_field(
    {
        "type": "array",
        "description": "Reward functions; the reward is the sum of weight times score.",
        "minItems": 1,
        "maxItems": 8,
        "items": {"oneOf": [*(_grader(kind) for kind in GRADERS), SAVED]},
    }
)
class GradersField(serializers.JSONField):
    """A task's reward functions (engine.rewards)."""


@extend_schema_field({"oneOf": [_grader(kind) for kind in GRADERS]})
class GraderField(serializers.JSONField):
    """One reward function."""


class TokenScheme(OpenApiAuthenticationExtension):  # type: ignore[no-untyped-call]
    """Tells of `Authorization: Token …`; found by the document's writer through its base class."""

    target_class = "jobs.api.auth.TokenAuthentication"
    name = "token"

    def get_security_definition(self, auto_schema: Any) -> dict[str, str]:
        """An API key in a header."""
        return {
            "type": "apiKey",
            "in": "header",
            "name": "Authorization",
            "description": "`Token <token>`, made under /api/v1/tokens",
        }


def add_errors(result: dict[str, Any], **_: Any) -> dict[str, Any]:
    """Say of every operation that its failures have the one shape, and explain it once."""
    assert errors.__doc__
    result["info"]["description"] += f"\n\n{errors.__doc__}"
    result["components"].setdefault("schemas", {})["Error"] = ERROR
    content = {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}}
    for operations in result["paths"].values():
        for operation in operations.values():
            operation["responses"]["4XX"] = {"description": "Refused", "content": content}
    return result


class Schema(JSONErrors, SpectacularAPIView):
    """The OpenAPI document."""


STYLED = csp_update({"style-src": [SELF, UNSAFE_INLINE]})


@method_decorator(STYLED, name="dispatch")
class Swagger(JSONErrors, SpectacularSwaggerSplitView):
    """The document as a page; the one page on which inline styles are allowed."""
