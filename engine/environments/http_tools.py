"""A tool that is an HTTP API: each call of the policy is one request.

What the policy writes ends up percent-encoded in a path or a query, or in a JSON body; it can
neither name a host nor leave the path that the tenant wrote.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any
from urllib.parse import quote, unquote, urlencode

from ..errors import GraderError
from ..json_objects import checked_object
from ..outbound import Answer, OutboundError, UrlRefused, read_url
from ..parameters import parameter, shown
from ..rewards import Services
from ..rewards.servers import secret_of
from .tool import ToolError

METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE")
MAX_SCHEMA_CHARACTERS = 20_000
MAX_ARGUMENT_CHARACTERS = 8_000
MAX_ANSWER_BYTES = 2**20
MAX_ERROR_CHARACTERS = 300  # of a server's own words about a failure

_PLACE = re.compile(r"\{([A-Za-z_][A-Za-z0-9_]*)\}")
_WITH_BODY = ("POST", "PUT", "PATCH")
_DOTS = (".", "..")


@dataclass(frozen=True)
class HttpTool:
    """One request to an API of yours; what it answers is the result."""

    name: str = "http"
    url: str = parameter("", "https URL, with {argument} in its path or query", max_length=2_000)
    description: str = parameter("", "one sentence, for the policy", max_length=1_000)
    schema: str = parameter(
        "{}",
        "JSON schema of the arguments: an object, or only its properties",
        max_length=MAX_SCHEMA_CHARACTERS,
        is_multiline=True,
    )
    method: str = parameter(
        "GET",
        "arguments that the URL does not name go to the query or a JSON body",
        choices=METHODS,
    )
    secret: str = parameter("", "name of the secret that is sent; empty: none")
    secret_header: str = parameter(
        "Authorization", "header that carries the secret; in this one as a bearer token"
    )
    timeout_s: float = parameter(10.0, "seconds until an answer must be there", low=0.1, high=300.0)

    @property
    def parameters(self) -> dict[str, Any]:
        """JSON schema of the arguments."""
        return read_schema(self.schema)

    def check(self) -> dict[str, str]:
        """What is wrong with the parameters together, by name."""
        wrong: dict[str, str] = {}
        if not self.description:
            wrong["description"] = "Is required: it is all that the policy knows of the tool."
        try:
            schema = self.parameters
        except ValueError as error:
            return {**wrong, "schema": str(error)}
        missing = [n for n in _PLACE.findall(self.url) if n not in schema["properties"]]
        if missing:
            wrong["url"] = f"Names {shown(missing[0])}, which the schema has no property for."
        elif problem := _url_problem(self.url):
            wrong["url"] = problem
        return wrong

    async def call(self, arguments: Mapping[str, Any], services: Services) -> str:
        """What the server answers. Raises: ToolError."""
        url, left = self._filled(arguments)
        has_body = self.method in _WITH_BODY
        if left and not has_body:
            pairs = [(key, _as_text(key, value)) for key, value in left.items()]
            url += ("&" if "?" in url else "?") + urlencode(pairs)
        try:
            answer: Answer = await services.need("outbound").request(
                services.tenant,
                self.method,
                url,
                json=left if has_body else None,
                secret=secret_of(services, self.secret, "tool"),
                secret_header=self.secret_header,
                timeout_s=self.timeout_s,
                max_bytes=MAX_ANSWER_BYTES,
                may_repeat=self.method == "GET",
            )
        except (OutboundError, GraderError) as error:
            raise ToolError(f"{self.name}: {error}") from error
        text = answer.content.decode("utf-8", "replace").strip()
        if not answer.is_ok:
            words = f": {text[:MAX_ERROR_CHARACTERS]}" if text else ""
            raise ToolError(f"{self.name} answered with status {answer.status}{words}")
        return text or "(empty)"

    def _filled(self, arguments: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
        """The URL with its arguments, and those that it does not name. Raises: ToolError."""
        places = set(_PLACE.findall(self.url))
        texts = {}
        for name in places:
            if name not in arguments:
                raise ToolError(f"{self.name} needs {name}")
            texts[name] = _as_text(name, arguments[name])
        path, mark, query = self.url.partition("?")
        path = _PLACE.sub(lambda found: quote(texts[found[1]], safe=""), path)
        query = _PLACE.sub(lambda found: quote(texts[found[1]], safe=""), query)
        if _climbs(path):
            raise ToolError(f"{self.name}: arguments must not contain . or .. as a part of a path")
        left = {key: value for key, value in arguments.items() if key not in places}
        return f"{path}{mark}{query}", left


@lru_cache(maxsize=256)
def read_schema(written: str) -> dict[str, Any]:
    """A JSON schema of an object; properties alone are all required.

    Raises: ValueError with the full sentence.
    """
    found = checked_object(written, MAX_SCHEMA_CHARACTERS)
    if found.get("type") != "object":
        found = {"type": "object", "properties": found, "required": list(found)}
    properties = found.get("properties", {})
    if not isinstance(properties, dict) or not all(
        isinstance(p, dict) for p in properties.values()
    ):
        raise ValueError('Must be like {"city": {"type": "string", "description": "a city"}}.')
    required = found.get("required", [])
    if not isinstance(required, list) or not all(
        isinstance(name, str) and name in properties for name in required
    ):
        raise ValueError("Its required must be a list of names among its properties.")
    return {**found, "properties": properties, "required": required}


def _url_problem(url: str) -> str | None:
    head, _, rest = url.partition("://")
    host = re.split(r"[/?#]", rest, maxsplit=1)[0]
    if "{" in head or "{" in host or "}" in host:
        return "Arguments may stand in the path and the query, not in the host."
    if "#" in url:
        return "Must not have a part after #: it is never sent."
    filled = _PLACE.sub("x", url)
    if "{" in filled or "}" in filled:
        return "Has a { or } that is no {argument}; write %7B and %7D for the characters."
    try:
        read_url(filled)
    except UrlRefused as error:
        return str(error)
    return "Must not contain . or .. as a part of its path." if _climbs(filled) else None


def _climbs(path: str) -> bool:
    """Whether a path, decoded as often as careless servers may, has a part that leaves it."""
    once = unquote(path.partition("?")[0])
    pieces = re.split(r"[/\\]", once) + re.split(r"[/\\]", unquote(once))
    return any(piece in _DOTS for piece in pieces)


def _as_text(name: str, value: Any) -> str:
    """An argument as it stands in a URL. Raises: ToolError."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if not isinstance(value, (str, int, float)):
        raise ToolError(f"{name} must be text or a number")
    text = str(value)
    if len(text) > MAX_ARGUMENT_CHARACTERS:
        raise ToolError(f"{name} must have at most {MAX_ARGUMENT_CHARACTERS:,} characters")
    return text.encode("utf-8", "replace").decode()
