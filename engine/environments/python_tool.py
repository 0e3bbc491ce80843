"""A Python interpreter for policies, in the tenant's sandbox, whose state lasts for an episode."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from ..errors import GraderError
from ..rewards import Services
from .tool import ToolError

NOTHING = "(nothing was printed)"
RESTARTED = "(the interpreter was started again: earlier names are gone)"


@dataclass(frozen=True)
class Python:
    """Runs Python and tells what it prints."""

    name: str = "python"

    description: ClassVar[str] = "Python to run; what it prints is the result"
    parameters: ClassVar[dict[str, Any]] = {
        "type": "object",
        "properties": {"code": {"type": "string", "description": "Python source"}},
        "required": ["code"],
    }
    examples: ClassVar[tuple[tuple[str, str, str, str], ...]] = (
        ("What is the sum of the first 50 odd numbers?", "print(sum(range(1, 100, 2)))", "2500",
         "2500"),
    )  # fmt: skip

    async def call(self, arguments: Mapping[str, Any], services: Services) -> str:
        """What the code printed. Raises: ToolError with the error, and its line."""
        try:
            sandboxes = services.need("sandboxes")
        except GraderError as error:
            raise ToolError(str(error)) from error
        done = await sandboxes.execute(services.tenant, services.episode, arguments["code"])
        told = [RESTARTED] if done.is_restarted else []
        if done.error:
            raise ToolError("\n".join([*told, done.error, *_lines(done.output)]))
        return "\n".join([*told, *_lines(done.output)]) or NOTHING

    async def let_go(self, services: Services) -> None:
        """The episode is over, and with it what its code has defined."""
        if services.sandboxes is not None:
            await services.sandboxes.end(services.tenant, services.episode)


def _lines(output: str) -> list[str]:
    text = output.rstrip("\n")
    return [text] if text else []
