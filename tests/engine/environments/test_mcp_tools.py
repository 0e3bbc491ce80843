"""Tools of a real MCP server, and of servers that break the protocol."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
import uvicorn
from mcp.server import MCPServer

from engine.environments.mcp_tools import McpTool, list_tools
from engine.environments.tool import ToolError
from engine.outbound import Outbound, parse_allowed
from engine.rewards.services import Secret, Services
from tests.engine.outbound.outside import (
    Received,
    answer,
    loopback,
    watching_connections,
)


def a_server() -> MCPServer:
    server = MCPServer("tests")

    @server.tool()
    def add(a: int, b: int) -> str:
        """Add two numbers."""
        return str(a + b)

    @server.tool(name="files/read")
    def read(path: str) -> str:
        """Read a file."""
        raise ValueError(f"no file {path}")

    @server.tool()
    async def sleep() -> str:
        """Takes its time."""
        await asyncio.sleep(3600)
        return "never"

    return server


@asynccontextmanager
async def serving_mcp(**options: Any) -> AsyncIterator[tuple[str, Services, int]]:
    """A server of the SDK's own on loopback; yields its URL, services and port."""
    app = a_server().streamable_http_app(**options)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        config = uvicorn.Config(app, log_level="critical", lifespan="on")
        server = uvicorn.Server(config)
        running = asyncio.create_task(server.serve(sockets=[listener]))
        client = Outbound(allowed=parse_allowed([f"127.0.0.0/8:{port}"]))
        try:
            yield f"http://127.0.0.1:{port}/mcp", Services(tenant="acme", outbound=client), port
        finally:
            await client.close()
            server.should_exit = server.force_exit = True
            await running


@pytest.mark.parametrize(
    "options", [{}, {"json_response": True}, {"stateless_http": True}], ids=str
)
def test_a_servers_tools_are_listed_and_called(options: dict[str, Any]) -> None:
    async def story() -> None:
        async with serving_mcp(**options) as (url, services, port):
            with watching_connections() as connections:
                tools = {tool.tool: tool for tool in await list_tools(url, "", services)}
                assert set(tools) == {"add", "files/read", "sleep"}
                add = tools["add"]
                assert (add.name, add.description) == ("add", "Add two numbers.")
                assert set(add.parameters["properties"]) == {"a", "b"}
                assert add.parameters["required"] == ["a", "b"]
                assert add.check() == {}
                assert await add.call({"a": 3, "b": 4}, services) == "7"
                assert tools["files/read"].name == "files_read"
                with pytest.raises(ToolError, match="Error executing tool files/read"):
                    await tools["files/read"].call({"path": "x"}, services)
                with pytest.raises(ToolError):
                    await add.call({"a": "no"}, services)
                with pytest.raises(ToolError):
                    await McpTool("x", url, "missing", "d").call({}, services)
            assert set(connections) == {("127.0.0.1", port)}

    asyncio.run(story())


def test_a_tool_that_takes_too_long_is_given_up() -> None:
    async def story() -> None:
        async with serving_mcp() as (url, services, _):
            tool = McpTool("sleep", url, "sleep", "d", timeout_s=1.0)
            with pytest.raises(ToolError, match="within 1 s"):
                await tool.call({}, services)

    asyncio.run(story())


def test_cancelling_a_call_ends_it() -> None:
    async def story() -> None:
        async with serving_mcp() as (url, services, _):
            call = asyncio.create_task(McpTool("s", url, "sleep", "d").call({}, services))
            await asyncio.sleep(0.3)
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call

    asyncio.run(story())


@pytest.mark.parametrize(
    ("url", "error"),
    [
        ("https://127.0.0.1/mcp", "not an address on the public internet"),
        ("http://mcp.example.com/mcp", "Must begin with https://"),
    ],
)
def test_a_forbidden_server_is_never_connected_to(url: str, error: str) -> None:
    async def story() -> None:
        client = Outbound()
        services = Services(tenant="acme", outbound=client)
        with watching_connections() as connections:
            with pytest.raises(ToolError, match=error):
                await McpTool("t", url, "t", "d").call({}, services)
            with pytest.raises(ToolError, match=error):
                await list_tools(url, "", services)
        assert connections == []
        await client.close()

    asyncio.run(story())


def test_a_redirect_elsewhere_is_not_followed() -> None:
    async def story() -> None:
        async def handler(request: Received, writer: asyncio.StreamWriter) -> None:
            await answer(writer, b"", 307, Location="https://169.254.169.254/mcp")

        async with loopback(handler) as (client, server, url):
            services = Services(tenant="acme", outbound=client)
            with watching_connections() as connections, pytest.raises(ToolError):
                await McpTool("t", url, "t", "d").call({}, services)
            assert set(connections) == {("127.0.0.1", server.port)}

    asyncio.run(story())


def initialized(request: Received) -> dict[str, Any]:
    """An answer to initialize."""
    result = {
        "protocolVersion": "2025-06-18",
        "capabilities": {"tools": {}},
        "serverInfo": {"name": "x", "version": "1"},
    }
    return {"jsonrpc": "2.0", "id": json.loads(request.body)["id"], "result": result}


def _reply(request: Received, result: Any) -> bytes:
    return json.dumps(
        {"jsonrpc": "2.0", "id": json.loads(request.body)["id"], "result": result}
    ).encode()


BROKEN: dict[str, Callable[[Received], bytes]] = {
    "empty": lambda request: b"",
    "no JSON": lambda request: b"<html>",
    "other JSON": lambda request: b"[1]",
    "deep JSON": lambda request: b"[" * 500_000,
    "no content": lambda request: _reply(request, {}),
    "wrong content": lambda request: _reply(request, {"content": [{"type": "text"}]}),
    "error": lambda request: json.dumps(
        {
            "jsonrpc": "2.0",
            "id": json.loads(request.body)["id"],
            "error": {"code": -32602, "message": "no " * 1_000},
        }
    ).encode(),
}


@pytest.mark.parametrize("kind", BROKEN)
def test_whatever_a_server_answers_is_an_error_for_the_policy(kind: str) -> None:
    async def story() -> None:
        async def handler(request: Received, writer: asyncio.StreamWriter) -> None:
            method = json.loads(request.body or b"{}").get("method", "")
            kind_of = {"Content_Type": "application/json"}
            if method == "initialize":
                body = json.dumps(initialized(request)).encode()
            elif method == "tools/call":
                body = BROKEN[kind](request)
            else:
                return await answer(writer, b"", 202)
            return await answer(writer, body, **kind_of)

        async with loopback(handler) as (client, server, url):
            secrets = {"key": Secret("key", url.removeprefix("http://"), "sk-1")}
            services = Services(tenant="acme", outbound=client, secrets=secrets)
            with pytest.raises(ToolError) as caught:
                await McpTool("t", url, "t", "d", secret="key", timeout_s=5).call({}, services)
            assert len(str(caught.value)) < 400
            assert "within" not in str(caught.value)
            headers = [request.headers.get("authorization") for request in server.received]
            assert set(headers) == {"Bearer sk-1"}

    asyncio.run(story())
