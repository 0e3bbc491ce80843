"""The policy calls tools until it answers.

A turn that asks for tools is answered with their results; one that asks for none is the answer and
ends the episode. Every limit is one of an episode: nothing that a tool does, or fails to do,
concerns another.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from ..parameters import parameter
from ..rewards import Services
from ..types import ToolCall, Trajectory
from .activity import TOOL, waiting_for
from .environment import Chat, Context, Reply
from .episode import last_answer
from .formats import FORMATS, Parsed, Request, ToolFormat
from .tool import Tool, ToolError

MAX_SHOWN = 500  # characters of a call's arguments that are kept with the trajectory
MAX_RESULT = 100_000  # characters of a result; the rest is cut before it is tokenised

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class ToolUse:
    """The policy may call tools; the answer without a call ends the episode."""

    has_turns: ClassVar[bool] = True

    tools: tuple[Tool, ...]
    format: str = parameter(
        "auto",
        "how calls are written; auto: as the model's chat template says, else plain",
        choices=("auto", *FORMATS),
    )
    max_tool_calls: int = parameter(8, "calls at most an episode", low=1, high=1_000)
    tool_timeout_s: float = parameter(10.0, "seconds at most a call", above=0.0, high=300.0)
    max_tool_seconds: float = parameter(
        60.0, "seconds at most in all calls of an episode", above=0.0, high=3_600.0
    )
    max_observation_length: int = parameter(
        256, "tokens at most of a turn's results; the rest is cut", low=8, high=16_384
    )

    def encode_prompt(self, messages: Sequence[Mapping[str, Any]], chat: Chat) -> list[int]:
        """The prompt's ids, with all that the policy must know of the tools."""
        opened, functions = self._format(chat).opening([dict(m) for m in messages], self.tools)
        return chat.encode_chat(opened, functions)

    async def answer(self, trajectory: Trajectory, row: dict[str, Any], context: Context) -> Reply:
        """The results of the last turn's calls, or the end."""
        ids = last_answer(trajectory)
        parsed = self._format(context.chat).parse(context.chat.decode(ids), self.tools)
        services = replace(context.services, episode=trajectory.key.name)
        if end := self._end(trajectory, parsed, context):
            await self._let_go(services)
            return end
        texts, calls = [], []
        for request in parsed.requests:
            text, call = await self._run(request, services)
            texts.append(text)
            calls.append(call)
        texts = self._cut(texts, context.chat)
        messages = self._format(context.chat).results(texts)
        return Reply(
            is_over=False,
            observation="\n".join(texts),
            observation_ids=tuple(context.chat.encode_reply(messages, ids[-1] if ids else -1)),
            calls=tuple(calls),
        )

    def _format(self, chat: Chat) -> ToolFormat:
        return FORMATS[chat.tool_format if self.format == "auto" else self.format]

    def _end(self, trajectory: Trajectory, parsed: Parsed, context: Context) -> Reply | None:
        """Why no call is made, if none is."""
        turn = trajectory.turns[-1]
        if not parsed.requests or turn.finish_reason != "stop":
            return Reply(is_over=True, answer=parsed.answer)
        made = [call for turn in trajectory.turns for call in turn.calls]
        if len(trajectory.turns) >= context.max_turns:
            reason = "turns"
        elif len(made) + len(parsed.requests) > self.max_tool_calls:
            reason = "tool_calls"
        elif sum(call.duration_s for call in made) >= self.max_tool_seconds:
            reason = "tool_seconds"
        else:
            return None
        return Reply(is_over=True, answer=parsed.answer, stop_reason=reason)

    async def _let_go(self, services: Services) -> None:
        """Of what tools kept for the episode."""
        for tool in self.tools:
            if hasattr(tool, "let_go"):
                await tool.let_go(services)

    async def _run(self, request: Request, services: Services) -> tuple[str, ToolCall]:
        """What the policy is told, and what is kept of the call. Raises only if cancelled."""
        started_at = time.monotonic()
        error = ""
        try:
            text = await self._called(request, services)
        except ToolError as problem:
            error = str(problem)
        except TimeoutError:
            error = f"{request.name} took longer than {self.tool_timeout_s:g} s"
        except Exception:
            log.exception("tool %s failed", request.name)
            error = f"{request.name} failed"
        call = ToolCall(
            request.name,
            request.written[:MAX_SHOWN],
            error[:MAX_SHOWN],
            time.monotonic() - started_at,
        )
        return (f"error: {error}" if error else text), call

    async def _called(self, request: Request, services: Services) -> str:
        if request.problem:
            raise ToolError(f"{request.name or 'call'}: {request.problem}")
        tool = next(tool for tool in self.tools if tool.name == request.name)
        _check_arguments(tool, request.arguments)
        with waiting_for(f"{TOOL} {tool.name}"):
            async with services.tool_slots, asyncio.timeout(self.tool_timeout_s):
                return (await tool.call(request.arguments, services))[:MAX_RESULT]

    def _cut(self, texts: Sequence[str], chat: Chat) -> list[str]:
        """Results that fit into max_observation_length tokens, each with its share."""
        share = max(4, self.max_observation_length // len(texts))
        return [chat.cut(text, share) for text in texts]


def _check_arguments(tool: Tool, arguments: Mapping[str, Any]) -> None:
    """Raises: ToolError where a required one is missing, unknown, or of another type."""
    properties: dict[str, Any] = tool.parameters.get("properties", {})
    for name in tool.parameters.get("required", ()):
        if name not in arguments:
            raise ToolError(f"{tool.name} needs {name}")
    for name, value in arguments.items():
        if name not in properties:
            raise ToolError(f"{tool.name} takes {', '.join(properties)}, not {str(name)[:50]}")
        wanted = properties[name].get("type")
        if isinstance(wanted, str) and not _is_of(value, wanted):
            raise ToolError(f"{name} must be of type {wanted}")


_TYPES: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "array": (list,),
    "object": (dict,),
}


def _is_of(value: Any, wanted: str) -> bool:
    if isinstance(value, bool):
        return wanted == "boolean"
    return isinstance(value, _TYPES.get(wanted, (object,)))
