"""A policy's arguments reach the path, query or body that the tenant gave them, nothing else."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from engine.environments.http_tools import HttpTool, read_schema
from engine.environments.tool import ToolError
from engine.rewards.services import Secret, Services
from tests.engine.outbound.outside import Handler, Received, Server, answer, echo, loopback

CITY = '{"city": {"type": "string", "description": "a city"}}'


@asynccontextmanager
async def tool_for(
    handler: Handler, path: str, **settings: Any
) -> AsyncIterator[tuple[HttpTool, Services, Server]]:
    async with loopback(handler) as (client, server, url):
        secrets = {"key": Secret("key", url.removeprefix("http://"), "sk-1")}
        services = Services(tenant="acme", outbound=client, secrets=secrets)
        yield HttpTool("weather", url + path, "the weather", **settings), services, server


def called(path: str, arguments: dict[str, Any], **settings: Any) -> Received:
    """The request that a call makes."""

    async def story() -> Received:
        async with tool_for(echo, path, **settings) as (tool, services, server):
            await tool.call(arguments, services)
            return server.received[0]

    return asyncio.run(story())


@pytest.mark.parametrize(
    ("path", "arguments", "sent"),
    [
        ("/v1/{city}", {"city": "Wien"}, "/v1/Wien"),
        ("/v1/{city}", {"city": "São Paulo/?#&%"}, "/v1/S%C3%A3o%20Paulo%2F%3F%23%26%25"),
        ("/v1/{city}.json?u={u}", {"city": "a", "u": "b&c=d#"}, "/v1/a.json?u=b%26c%3Dd%23"),
        ("/v1", {"city": "a b", "n": 2, "x": True}, "/v1?city=a+b&n=2&x=true"),
        ("/v1?key=1", {"city": "ä"}, "/v1?key=1&city=%C3%A4"),
        ("/{a}{b}", {"a": "@evil.test", "b": "\\\r\n"}, "/%40evil.test%5C%0D%0A"),
        ("/{a}", {"a": "//evil.test"}, "/%2F%2Fevil.test"),
        ("/{a}", {"a": "{b}"}, "/%7Bb%7D"),
        ("/?q={a}", {"a": "../.."}, "/?q=..%2F.."),
    ],
)
def test_arguments_are_encoded_where_they_stand(
    path: str, arguments: dict[str, Any], sent: str
) -> None:
    request = called(path, arguments)
    assert request.path == sent
    assert request.headers["host"].startswith("127.0.0.1:")


def test_what_the_url_does_not_name_goes_to_the_body_of_a_post() -> None:
    request = called("/v1/{city}", {"city": "a", "days": [1, {"x": "\ud800"}]}, method="POST")
    assert (request.method, request.path) == ("POST", "/v1/a")
    assert json.loads(request.body) == {"days": [1, {"x": "\ud800"}]}


@pytest.mark.parametrize(
    "value", [".", "..", "../x", "a/../b", "..\\x", "%2e%2e", "%2e%2e/x", "%2E%2e%2fx"]
)
def test_no_argument_leaves_the_path(value: str) -> None:
    async def story() -> None:
        async with tool_for(echo, "/v1/{city}/x") as (tool, services, server):
            with pytest.raises(ToolError, match="must not contain"):
                await tool.call({"city": value}, services)
            assert server.received == []

    asyncio.run(story())


def test_two_arguments_cannot_climb_together() -> None:
    with pytest.raises(ToolError, match="must not contain"):
        called("/v1/{a}{b}/x", {"a": ".", "b": "."})


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({}, "weather needs city"),
        ({"city": ["a"]}, "city must be text or a number"),
        ({"city": None}, "city must be text or a number"),
        ({"city": "x" * 9_000}, "city must have at most 8,000 characters"),
    ],
)
def test_the_policy_is_told_what_is_wrong_with_arguments(
    arguments: dict[str, Any], error: str
) -> None:
    with pytest.raises(ToolError) as caught:
        called("/v1/{city}", arguments)
    assert str(caught.value) == error


def test_results_and_failures_are_text_for_the_policy() -> None:
    async def story() -> None:
        async def handler(request: Received, writer: asyncio.StreamWriter) -> None:
            bodies = {"/ok": "é".encode() + b"\xff", "/no": b"no such city", "/none": b" "}
            await answer(writer, bodies[request.path], 404 if request.path == "/no" else 200)

        async with tool_for(handler, "/{what}") as (tool, services, _):
            assert await tool.call({"what": "ok"}, services) == "é\ufffd"
            assert await tool.call({"what": "none"}, services) == "(empty)"
            with pytest.raises(
                ToolError, match=r"^weather answered with status 404: no such city$"
            ):
                await tool.call({"what": "no"}, services)
            inside = HttpTool("inside", "https://169.254.169.254/", "x")
            with pytest.raises(ToolError, match=r"inside: .*not an address on the public internet"):
                await inside.call({}, services)
            with pytest.raises(ToolError, match="this process has no outbound"):
                await tool.call({"what": "ok"}, Services())

    asyncio.run(story())


def test_the_secret_is_sent_in_the_header_of_the_tenants_choice() -> None:
    request = called("/", {}, secret="key", secret_header="X-Api-Key")
    assert request.headers["x-api-key"] == "sk-1"
    with pytest.raises(ToolError, match="there is no secret 'other'"):
        called("/", {}, secret="other")


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("https://{city}.example.com/", "Arguments may stand in the path and the query, not"),
        ("https://example.com{city}/", "Arguments may stand in the path and the query, not"),
        ("{city}://example.com/", "Arguments may stand in the path and the query, not"),
        ("https://example.com/{town}", "Names 'town', which the schema has no property for."),
        ("https://example.com/{", "Has a { or } that is no {argument}"),
        ("https://example.com/#{city}", "Must not have a part after #"),
        ("https://example.com/a/../{city}", "Must not contain . or .. as a part of its path."),
        ("ftp://example.com/{city}", "Must begin with https://"),
        ("", "Must be a URL such as"),
    ],
)
def test_a_wrong_url_is_explained(url: str, problem: str) -> None:
    wrong = HttpTool("t", url, "d", CITY).check()
    assert list(wrong) == ["url"]
    assert wrong["url"].startswith(problem)


def test_a_right_tool_has_nothing_wrong() -> None:
    tool = HttpTool("t", "https://example.com/{city}?q={city}", "d", CITY)
    assert tool.check() == {}
    assert tool.parameters == {
        "type": "object",
        "properties": {"city": {"type": "string", "description": "a city"}},
        "required": ["city"],
    }


@pytest.mark.parametrize(
    "written",
    [
        "",
        "[]",
        "3",
        '{"city": "string"}',
        '{"type": "object", "properties": []}',
        '{"type": "object", "properties": {}, "required": ["x"]}',
        "[" * 20_000,
    ],
)
def test_a_wrong_schema_is_explained(written: str) -> None:
    sentences = r"Is not JSON|Must be (like|a JSON)|Must not be nested|Its required must be"
    with pytest.raises(ValueError, match=sentences):
        read_schema(written)
    assert "schema" in HttpTool("t", "https://example.com/", "d", written).check()
