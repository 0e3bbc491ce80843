"""Tools of an MCP server, called over streamable HTTP through `Outbound`.

The protocol is the `mcp` package's; what it opens connections with is ours, so no request of it
misses the guard. Two things of the package are left unused: the stream on which a server may speak
first, which would be held open, and the check of results against schemas that the server gives,
whose patterns could hold up this process.
"""

from __future__ import annotations

import asyncio
import json
import logging
import re
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any

from ..errors import GraderError
from ..outbound import OutboundTransport
from ..parameters import parameter, shown
from ..rewards import Services
from ..rewards.servers import secret_of, url_problem
from .http_tools import MAX_ERROR_CHARACTERS, MAX_SCHEMA_CHARACTERS, read_schema
from .tool import ToolError

DEFAULT_NAME = "mcp"
MAX_NAME_CHARACTERS = 50
MAX_TOOLS = 64  # of one server that are listed
MAX_PAGES = 8
MAX_DESCRIPTION_CHARACTERS = 1_000
MAX_RESULT_CHARACTERS = 100_000
LIST_TIMEOUT_S = 20.0
METHODS = ("POST", "DELETE")  # not GET, which opens the stream for the server's own messages

for _name in ("mcp", "httpx2"):  # they log what servers say, and a line for every request
    logging.getLogger(_name).setLevel(logging.CRITICAL)


@dataclass(frozen=True)
class McpTool:
    """A tool of an MCP server, or without a description all of its tools, or the one named.

    What the server then lists is stored with the task: `list_tools` makes whole ones.
    """

    name: str = DEFAULT_NAME
    url: str = parameter("", "the server's streamable HTTP endpoint", max_length=2_000)
    tool: str = parameter("", "the tool's name there; empty: all that it lists", max_length=200)
    description: str = parameter(
        "",
        "for the policy; empty: as the server says when the task is submitted",
        max_length=MAX_DESCRIPTION_CHARACTERS,
        is_multiline=True,
    )
    schema: str = parameter(
        "{}", "JSON schema of the arguments", max_length=MAX_SCHEMA_CHARACTERS, is_multiline=True
    )
    secret: str = parameter("", "name of the secret that is sent as a bearer token; empty: none")
    timeout_s: float = parameter(30.0, "seconds until a result must be there", low=0.1, high=300.0)

    @property
    def parameters(self) -> dict[str, Any]:
        """JSON schema of the arguments."""
        return read_schema(self.schema)

    @property
    def is_unlisted(self) -> bool:
        """Whether the server is still to be asked for its tools."""
        return not self.description

    def check(self) -> dict[str, str]:
        """What is wrong with the parameters together, by name."""
        wrong = {
            "url": url_problem(self.url),
            "tool": None if self.tool or self.is_unlisted else "Is required beside a description.",
        }
        try:
            read_schema(self.schema)
        except ValueError as error:
            wrong["schema"] = str(error)
        return {name: text for name, text in wrong.items() if text}

    async def call(self, arguments: Mapping[str, Any], services: Services) -> str:
        """The text of the tool's result. Raises: ToolError."""
        if self.is_unlisted:
            raise ToolError("the server's tools were not listed when the task was submitted")
        from mcp import types

        params = types.CallToolRequestParams(name=self.tool, arguments=dict(arguments))
        async with _session(self.url, self.secret, self.timeout_s, services) as session:
            result = await session.send_request(
                types.CallToolRequest(params=params), types.CallToolResult
            )
        text = _text(result)
        if result.is_error:
            raise ToolError(text)
        return text


def listed(tool: McpTool, found: Sequence[McpTool]) -> tuple[McpTool, ...]:
    """What stands for an unlisted tool: all that its server has, or the one that it names.

    found: of `list_tools`. A name other than mcp is what the names begin with.
    Raises: LookupError with a sentence if the server has no such tool, or none at all.
    """
    chosen = [one for one in found if tool.tool in ("", one.tool)]
    if not found:
        raise LookupError("The server lists no tools.")
    if not chosen:
        names = ", ".join(one.tool[:50] for one in found[:20])
        raise LookupError(f"The server has no tool {shown(tool.tool)}; it has: {names}.")
    prefix = "" if tool.name == DEFAULT_NAME else f"{tool.name}_"
    return tuple(
        replace(one, name=f"{prefix}{one.name}"[:MAX_NAME_CHARACTERS], timeout_s=tool.timeout_s)
        for one in chosen
    )


async def list_tools(url: str, secret: str, services: Services) -> list[McpTool]:
    """The tools that a server has now, at most 64, to be kept with a task's settings.

    Raises: ToolError with a sentence.
    """
    from mcp import types

    found: list[Any] = []
    cursor = None
    async with _session(url, secret, LIST_TIMEOUT_S, services) as session:
        for _ in range(MAX_PAGES):
            request = types.ListToolsRequest(params=types.PaginatedRequestParams(cursor=cursor))
            page = await session.send_request(request, types.ListToolsResult)
            found += page.tools
            cursor = page.next_cursor
            if cursor is None or len(found) >= MAX_TOOLS:
                break
    return [_tool(tool, url, secret) for tool in found[:MAX_TOOLS]]


@asynccontextmanager
async def _session(
    url: str, secret: str, timeout_s: float, services: Services
) -> AsyncIterator[Any]:
    """A session with a server, and what goes wrong in it as ToolErrors."""
    from mcp import ClientSession, MCPError
    from mcp.client.streamable_http import streamable_http_client

    transport = None
    try:
        transport = OutboundTransport(
            services.need("outbound"),
            services.tenant,
            secret=secret_of(services, secret, "tool"),
            timeout_s=timeout_s,
            methods=METHODS,
        )
        async with (
            asyncio.timeout(timeout_s),
            transport.client() as client,
            streamable_http_client(url, http_client=client) as (read, write),
            ClientSession(read, write) as session,
        ):
            await session.initialize()
            yield session
    except GraderError as error:
        raise ToolError(str(error)) from error
    except TimeoutError as error:
        raise ToolError(f"the MCP server gave no result within {timeout_s:g} s") from error
    except Exception as error:
        if transport is not None and transport.failure is not None:
            raise ToolError(str(transport.failure)) from error
        cause = _cause(error)
        if isinstance(cause, MCPError) and (said := _said(cause.message)):
            raise ToolError(f"the MCP server says: {said}") from error
        raise ToolError("the MCP server did not answer as the protocol asks") from error


def _cause(error: BaseException) -> BaseException:
    """What went wrong first, out of the groups that task groups make of it."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def _tool(tool: Any, url: str, secret: str) -> McpTool:
    schema = json.dumps(tool.input_schema)
    if len(schema) > MAX_SCHEMA_CHARACTERS:
        raise ToolError(f"the schema of the server's tool {tool.name[:50]} is too long")
    return McpTool(
        name=re.sub(r"[^A-Za-z0-9_-]", "_", tool.name)[:MAX_NAME_CHARACTERS],
        url=url,
        tool=tool.name,
        description=_printable(tool.description or "") or tool.name,
        schema=schema,
        secret=secret,
    )


def _printable(text: str) -> str:
    """On one line, without what no stored text may have."""
    kept = "".join(mark if mark.isprintable() else " " for mark in text)
    return " ".join(kept.split())[:MAX_DESCRIPTION_CHARACTERS]


def _text(result: Any) -> str:
    """What a policy can read of a result."""
    parts = [block.text if block.type == "text" else f"({block.type})" for block in result.content]
    if not parts and result.structured_content is not None:
        parts = [json.dumps(result.structured_content, ensure_ascii=False)]
    return "\n".join(parts)[:MAX_RESULT_CHARACTERS] or "(empty)"


def _said(message: str) -> str:
    """What a server said, on one line; "" where it is the library's own complaint of it."""
    if message.startswith(("Failed to parse", "Redirect to")) or "validation error" in message:
        return ""
    return " ".join(message.split())[:MAX_ERROR_CHARACTERS]
