"""What a tool is: something that the policy may call between its turns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from ..errors import EnvironmentFault
from ..rewards import Services


class ToolError(EnvironmentFault):
    """A call that gives no result; the text is told to the policy."""


class Tool(Protocol):
    """Frozen, so that one serves all episodes of a task at once."""

    @property
    def name(self) -> str: ...

    @property
    def description(self) -> str:
        """One sentence, for the policy."""
        ...

    @property
    def parameters(self) -> dict[str, Any]:
        """JSON schema of the arguments, an object."""
        ...

    async def call(self, arguments: Mapping[str, Any], services: Services) -> str:
        """The result as text. Raises: ToolError. It may be cancelled at any time."""
        ...


def as_function(tool: Tool) -> dict[str, Any]:
    """The tool as chat templates expect one."""
    function = {
        "name": tool.name,
        "description": tool.description,
        "parameters": tool.parameters,
    }
    return {"type": "function", "function": function}


def only_parameter(tool: Tool) -> str | None:
    """The name of a tool's parameter where it has one and that is text; else None."""
    properties: dict[str, Any] = tool.parameters.get("properties", {})
    if len(properties) != 1:
        return None
    ((name, schema),) = properties.items()
    return name if schema.get("type") == "string" else None
