"""MCP servers that a task names, asked for their tools when the task is submitted.

What a server lists then is stored with the task and never asked for again: a task's tools are as
immutable as its other settings, whatever the server says later. Servers are asked by an
environment worker, all of a task's at once.
"""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any

from engine.environments import Environment, Tool, ToolUse, dump_environment, parse_environment
from engine.environments.mcp_tools import McpTool, listed
from engine.environments.registry import MAX_TOOLS
from engine.errors import SpecError
from engine.parameters import shown
from jobs.services.errands import ask

LIST_S = 30.0  # the worker gives a server 20
MAX_SERVERS = 4  # of one task


def with_listed_tools(tenant: str, environment: Environment) -> Environment:
    """The environment with the tools that its unlisted servers have now.

    tenant: its key. Raises: SpecError under `environment.tools.N.…`; QuotaError and ErrandError
    where no worker could be asked.
    """
    unlisted = [tool for tool in getattr(environment, "tools", ()) if _is_unlisted(tool)]
    if not unlisted:
        return environment
    assert isinstance(environment, ToolUse)
    servers = list(dict.fromkeys((tool.url, tool.secret) for tool in unlisted))
    if len(servers) > MAX_SERVERS:
        raise _wrong("", f"At most {MAX_SERVERS} MCP servers are asked, not {len(servers)}.")
    payload = {"servers": [{"url": url, "secret": secret} for url, secret in servers]}
    answers = dict(zip(servers, ask("list_tools", tenant, payload, LIST_S), strict=True))
    tools: list[Tool] = []
    for place, tool in enumerate(environment.tools):
        if not _is_unlisted(tool):
            tools.append(tool)
            continue
        added = _listed(place, tool, answers)
        others = [other for other in environment.tools if not _is_unlisted(other)]
        _check_names(place, added, [*others, *tools])
        tools += added
    if len(tools) > MAX_TOOLS:
        raise _too_many(len(tools))
    return _checked(replace(environment, tools=tuple(tools)))


def _is_unlisted(tool: Tool) -> bool:
    return isinstance(tool, McpTool) and tool.is_unlisted


def _listed(place: int, tool: Any, answers: dict[Any, Any]) -> tuple[McpTool, ...]:
    answer = answers[tool.url, tool.secret]
    if "error" in answer:
        raise _wrong(f".{place}.url", f"The server's tools could not be listed: {answer['error']}")
    try:
        return listed(tool, [McpTool(**values) for values in answer["tools"]])
    except LookupError as error:
        raise _wrong(f".{place}.{'tool' if tool.tool else 'url'}", str(error.args[0])) from None


def _check_names(place: int, added: tuple[McpTool, ...], others: list[Tool]) -> None:
    names = {tool.name for tool in others}
    for tool in added:
        if tool.name in names:
            raise _wrong(
                f".{place}.url",
                f"It has a tool {shown(tool.name)}, as another has; give this server a name, which"
                " the names of its tools then begin with.",
            )
        names.add(tool.name)


def _too_many(num_tools: int) -> SpecError:
    return _wrong(
        "",
        f"With all that the MCP servers list it makes {num_tools} tools, and a task may have"
        f" {MAX_TOOLS}: the policy is told of each. Name those that it needs, as"
        ' {"type": "mcp", "url": …, "tool": NAME}.',
    )


def _checked(environment: ToolUse) -> Environment:
    """Raises: SpecError if it could not be read back from its row."""
    try:
        return parse_environment(dump_environment(environment))
    except SpecError as error:
        path, [message, *_] = next(iter(error.fields.items()))
        place = path.split(".")[2:3]
        tool = environment.tools[int(place[0])] if place else None
        if not isinstance(tool, McpTool):
            raise
        name = shown(tool.tool)
        raise _wrong("", f"The tool {name} of {tool.url} cannot be used: {message}") from None


def _wrong(path: str, message: str) -> SpecError:
    return SpecError({f"environment.tools{path}": [message]})


def as_answer(tools: list[McpTool]) -> dict[str, Any]:
    """What the environment worker answers for a server."""
    return {"tools": [asdict(tool) for tool in tools]}
