"""Environments: what answers the policy between its turns, and says when an episode is over."""

from .environment import Chat, Context, Environment, Reply
from .episode import last_answer
from .own import add_environments
from .registry import (
    ENVIRONMENTS,
    TOOLS,
    dump_environment,
    environment_catalogue,
    parse_environment,
    tool_catalogue,
)
from .retry import Retry
from .single_turn import SingleTurn
from .tool import Tool, ToolError
from .tool_use import ToolUse

__all__ = [
    "ENVIRONMENTS",
    "TOOLS",
    "Chat",
    "Context",
    "Environment",
    "Reply",
    "Retry",
    "SingleTurn",
    "Tool",
    "ToolError",
    "ToolUse",
    "add_environments",
    "dump_environment",
    "environment_catalogue",
    "last_answer",
    "parse_environment",
    "tool_catalogue",
]
