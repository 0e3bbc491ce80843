"""Which environments and tools there are, and the only way from a person's words to them.

To add an environment: a frozen dataclass as `environment.py` describes, and its line here. To add a
tool: one as `tool.py` describes, and its line here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields
from typing import Any

from ..errors import SpecError
from ..json_objects import checked_object
from ..parameters import convert, describe, shown, text, unknown
from .calculator import Calculator
from .environment import Environment
from .http_tools import HttpTool
from .mcp_tools import McpTool
from .python_tool import Python
from .retry import Retry
from .search import Search
from .single_turn import SingleTurn
from .tool import Tool
from .tool_use import ToolUse

MAX_TOOLS = 16
MAX_JSON_CHARACTERS = 100_000
MAX_KEYS = 40  # of one description; more are not looked at
MAX_NAME_CHARACTERS = 50

ENVIRONMENTS: dict[str, type[Any]] = {
    "single_turn": SingleTurn,
    "retry": Retry,
    "tools": ToolUse,
}
TOOLS: dict[str, type[Any]] = {
    "calculator": Calculator,
    "python": Python,
    "search": Search,
    "http": HttpTool,
    "mcp": McpTool,
}


def parse_environment(item: Any) -> Environment:
    """A name, or a mapping with `type` and parameters, to an environment.

    `{"type": "search", …}` is `tools` with that one tool; its parameters and the environment's
    stand side by side. Raises: SpecError with every wrong field at once, under paths like
    `environment.tools.0.corpus`.
    """
    if isinstance(item, str):
        item = _written(item)
    if not isinstance(item, Mapping) or len(item) > MAX_KEYS:
        raise SpecError(
            {"environment": ['Must be a name, or an object such as {"type": "retry"}.']}
        )
    kind = item.get("type")
    if isinstance(kind, str) and kind in TOOLS:
        return parse_environment(_with_one_tool(item))
    if not isinstance(kind, str) or kind not in ENVIRONMENTS:
        known = ", ".join((*ENVIRONMENTS, *TOOLS))
        raise SpecError({"environment.type": [f"Must be one of {known}, not {shown(kind)}."]})
    values = {key: value for key, value in item.items() if key not in ("type", "tools")}
    parsed, errors = _parameters(ENVIRONMENTS[kind], "environment setting", values)
    if kind == "tools":
        tools, wrong = _tools(item.get("tools"))
        parsed["tools"], errors = tools, {**errors, **wrong}
    elif "tools" in item:
        errors["tools"] = f"{kind} uses no tools; choose the environment tools."
    if errors:
        raise SpecError({f"environment.{path}": [text] for path, text in errors.items()})
    environment: Environment = ENVIRONMENTS[kind](**parsed)
    wrong = environment.check() if hasattr(environment, "check") else {}
    if wrong:
        raise SpecError({f"environment.{path}": [text] for path, text in wrong.items()})
    return environment


def _written(item: str) -> Any:
    """A name, or JSON as a form sends it."""
    if not item.strip().startswith("{"):
        return {"type": item.strip()}
    try:
        return checked_object(item, MAX_JSON_CHARACTERS)
    except ValueError as error:
        raise SpecError({"environment": [str(error)]}) from None


def dump_environment(environment: Environment) -> dict[str, Any]:
    """A plain mapping that `parse_environment` reads back to an equal environment."""
    kinds = {cls: kind for kind, cls in ENVIRONMENTS.items()}
    found: dict[str, Any] = {"type": kinds[type(environment)]}
    names = {cls: kind for kind, cls in TOOLS.items()}
    for spec in fields(environment):  # type: ignore[arg-type]
        value = getattr(environment, spec.name)
        if spec.name == "tools":
            value = [{"type": names[type(tool)], **asdict(tool)} for tool in value]
        found[spec.name] = value
    return found


def environment_catalogue() -> list[dict[str, Any]]:
    """Every environment with its parameters, as plain values, for forms and documents."""
    return [_entry(kind, cls) for kind, cls in ENVIRONMENTS.items()]


def tool_catalogue() -> list[dict[str, Any]]:
    """Every tool with its parameters, as plain values, for forms and documents."""
    return [_entry(kind, cls) for kind, cls in TOOLS.items()]


def _entry(kind: str, cls: type[Any]) -> dict[str, Any]:
    return {"type": kind, "help": (cls.__doc__ or "").strip(), "parameters": describe(cls)}


def _with_one_tool(item: Mapping[str, Any]) -> dict[str, Any]:
    """The mapping of a tool with parameters of `tools` among its own, as one of `tools`."""
    own = {spec.name for spec in fields(ToolUse) if spec.metadata}
    outer = {key: value for key, value in item.items() if key in own}
    tool = {key: value for key, value in item.items() if key not in own}
    return {"type": "tools", "tools": [tool], **outer}


def _tools(items: Any) -> tuple[tuple[Tool, ...], dict[str, str]]:
    """The tools, or what is wrong with them by path."""
    if not isinstance(items, Sequence) or isinstance(items, str) or not items:
        return (), {"tools": 'Must be a list such as [{"type": "calculator"}].'}
    if len(items) > MAX_TOOLS:
        return (), {"tools": f"At most {MAX_TOOLS} are allowed, not {len(items)}."}
    tools: list[Tool] = []
    errors: dict[str, str] = {}
    for place, item in enumerate(items):
        tool, wrong = _tool(item)
        errors |= {f"tools.{place}{path}": message for path, message in wrong.items()}
        if tool is not None and tool.name in {other.name for other in tools}:
            errors[f"tools.{place}.name"] = f"Another one is named {shown(tool.name)}."
        if tool is not None:
            tools.append(tool)
    return tuple(tools), errors


def _tool(item: Any) -> tuple[Tool | None, dict[str, str]]:
    """A tool, or what is wrong with it by path below its place."""
    if isinstance(item, str):
        item = {"type": item}
    if not isinstance(item, Mapping) or len(item) > MAX_KEYS:
        return None, {"": 'Must be an object such as {"type": "calculator"}.'}
    kind = item.get("type")
    if not isinstance(kind, str) or kind not in TOOLS:
        return None, {".type": f"Must be one of {', '.join(TOOLS)}, not {shown(kind)}."}
    values = {key: value for key, value in item.items() if key not in ("type", "name")}
    parsed, wrong = _parameters(TOOLS[kind], f"parameter of {kind}", values)
    try:
        parsed["name"] = _name(item.get("name", kind))
    except ValueError as error:
        wrong["name"] = str(error)
    if wrong:
        return None, {f".{path}": message for path, message in wrong.items()}
    tool = TOOLS[kind](**parsed)
    check = tool.check() if hasattr(tool, "check") else {}
    return tool, {f".{path}": message for path, message in check.items()}


def _name(value: Any) -> str:
    """A tool's name, that a policy can write and a format can carry."""
    name = text(value, MAX_NAME_CHARACTERS)
    if not name.isascii() or not name.replace("_", "a").replace("-", "a").isalnum():
        raise ValueError("Must be letters, digits, _ and - alone.")
    return name


def _parameters(
    cls: type[Any], kind: str, values: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, str]]:
    """Parsed values of a dataclass' parameters, and what is wrong, by name."""
    specs = {spec.name: spec for spec in fields(cls) if spec.metadata}
    parsed: dict[str, Any] = {}
    errors: dict[str, str] = {}
    for key, value in values.items():
        try:
            if key not in specs:
                raise ValueError(unknown(kind, key, specs, {}))
            parsed[key] = convert(specs[key], value)
        except ValueError as error:
            errors[key[:MAX_NAME_CHARACTERS]] = str(error)
    return parsed, errors
