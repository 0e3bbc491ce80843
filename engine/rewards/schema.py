"""The completion is a JSON document that a schema describes.

The schema is a tenant's and the document its policy's, and a schema's patterns and combinations can
take for ever, so documents are checked in a process of its own (`workers.py`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from ..errors import GraderError
from ..parameters import parameter, shown
from .services import Sample, Services
from .workers import WorkerError, WorkerOverrunError

MAX_SCHEMA_CHARACTERS = 20_000
MAX_TEXT_CHARACTERS = 50_000  # of the completion; a longer one is no valid document
LATEST = "https://json-schema.org/draft/2020-12/schema"
VERSIONS = (  # older ones take "id" for an address
    LATEST,
    "https://json-schema.org/draft/2019-09/schema",
    "http://json-schema.org/draft-07/schema#",
    "http://json-schema.org/draft-07/schema",
    "http://json-schema.org/draft-06/schema#",
    "http://json-schema.org/draft-06/schema",
)
TIMEOUT_S = 1.0  # of processor time; an ordinary document takes a thousandth of it
_ELSEWHERE = ("$id", "$dynamicRef", "$recursiveRef")
_FENCE = re.compile(r"^[ ]{0,3}```[^\n`]*\n(.*?)^[ ]{0,3}```[ ]*$", re.DOTALL | re.MULTILINE)


@dataclass(frozen=True)
class JSONSchema:
    """1 if the completion is JSON that the schema allows, else 0.

    Formats are not checked, and references must point into the schema itself (#/$defs/…).
    """

    name: str
    weight: float = 1.0
    schema: str = parameter(
        "{}", "JSON schema of the document", json=True, max_length=MAX_SCHEMA_CHARACTERS
    )
    allow_fence: bool = parameter(
        True, "the document may stand in a Markdown code block, of which the last one counts"
    )

    def check(self) -> dict[str, str]:
        """What is wrong with the parameters together, by name."""
        problem = _problem(json.loads(self.schema))
        return {"schema": problem} if problem else {}

    async def score_with(self, sample: Sample, services: Services) -> float:
        """0 or 1. Raises: GraderError if the schema cannot be applied in time."""
        if len(sample.completion) > MAX_TEXT_CHARACTERS:
            return 0.0
        arguments = {"schema": self.schema, "document": self._document(sample.completion)}
        workers = services.need("workers")
        try:
            score = await workers.run("json_schema", arguments, TIMEOUT_S, services.tenant)
        except WorkerOverrunError:
            raise GraderError(
                f"unresponsive_reward_error: the schema took longer than {TIMEOUT_S:g} s, or went"
                " too deep; patterns such as (a+)+ and schemas that refer to themselves without end"
                " are the usual causes"
            ) from None
        except WorkerError as error:
            raise GraderError(f"python_grader_server_error: {error}") from None
        return float(score)

    def _document(self, completion: str) -> str:
        if self.allow_fence and "```" in completion:
            return next((m[1] for m in reversed(list(_FENCE.finditer(completion)))), completion)
        return completion


def _problem(schema: dict[str, Any]) -> str:
    """Why the schema cannot be used; empty if it can."""
    from jsonschema import SchemaError, validators  # of use here alone

    version = schema.get("$schema", LATEST)
    if version not in VERSIONS:
        return f"Has a $schema that is not known here; leave it out, or give {LATEST}."

    for key, value in _entries(schema):
        if key in _ELSEWHERE and isinstance(value, str):
            return f"Must not contain {key}."
        if key == "$ref" and isinstance(value, str) and not _leads_somewhere(schema, value):
            return f"Must refer to a part of itself such as #/$defs/name, not to {shown(value)}."
        if key == "pattern" and isinstance(value, str) and (wrong := _pattern_problem(value)):
            return wrong
    try:
        validators.validator_for({"$schema": version}).check_schema(schema)
    except SchemaError as error:
        place = "/".join(map(str, error.absolute_path))[:100]
        return f"Is not a JSON schema: {error.message[:200]}" + (
            f" (at {place})." if place else "."
        )
    except RecursionError:
        return "Is nested too deep."
    return ""


def _entries(value: Any) -> Iterator[tuple[str, Any]]:
    """All keys with their values, however deep; the depth was bounded when the text was read."""
    if isinstance(value, dict):
        yield from value.items()
    for inner in value.values() if isinstance(value, dict) else value:
        if isinstance(inner, (dict, list)):
            yield from _entries(inner)


def _leads_somewhere(schema: Any, pointer: str) -> bool:
    if pointer == "#":
        return True
    if not pointer.startswith("#/"):
        return False
    for part in pointer[2:].split("/"):
        key = part.replace("~1", "/").replace("~0", "~")
        if isinstance(schema, list) and key.isdecimal() and int(key) < len(schema):
            schema = schema[int(key)]
        elif isinstance(schema, dict) and key in schema:
            schema = schema[key]
        else:
            return False
    return isinstance(schema, (dict, bool))


def _pattern_problem(pattern: str) -> str:
    try:
        re.compile(pattern)
    except (re.error, RecursionError, OverflowError) as error:
        return f"Has a pattern that is no regular expression: {str(error)[:200]}."
    return ""
