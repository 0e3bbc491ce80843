"""How a policy writes that it wants a tool, and how it is told of tools and results.

`hermes` and `llama` are what models of the Qwen and Llama families were trained on, through their
own chat templates. `plain` needs nothing of the template and little of the model: a line with the
tool's name, a colon and what to give it, shown by examples; a model of 135 million weights writes
it nine times in ten.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from .tool import Tool, as_function, only_parameter

MAX_CALLS = 8  # of one turn; the rest is not looked at
MAX_TEXT = 100_000  # characters of a turn
Message = dict[str, Any]


@dataclass(frozen=True)
class Request:
    """A call as the policy wrote it. With `problem` set it cannot be made."""

    name: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    written: str = ""  # the arguments, as text
    problem: str = ""


@dataclass(frozen=True)
class Parsed:
    """What a turn says: calls, or an answer."""

    requests: tuple[Request, ...]
    answer: str  # without marks of the format and without thoughts


class ToolFormat(Protocol):
    """One way of writing calls."""

    def opening(
        self, messages: Sequence[Message], tools: Sequence[Tool]
    ) -> tuple[list[Message], list[dict[str, Any]]]:
        """The prompt with what the policy must know: messages, and functions for the template."""
        ...

    def parse(self, text: str, tools: Sequence[Tool]) -> Parsed:
        """Never raises, whatever the policy wrote."""
        ...

    def results(self, texts: Sequence[str]) -> list[Message]:
        """Messages that tell the policy the results of its calls, in their order."""
        ...


class Hermes:
    """`<tool_call>{"name": …, "arguments": {…}}</tool_call>`: Qwen 2.5 and 3, Hermes."""

    _CALL = re.compile(r"<tool_call>(.*?)(?:</tool_call>|$)", re.DOTALL)

    def opening(
        self, messages: Sequence[Message], tools: Sequence[Tool]
    ) -> tuple[list[Message], list[dict[str, Any]]]:
        return list(messages), [as_function(tool) for tool in tools]

    def parse(self, text: str, tools: Sequence[Tool]) -> Parsed:
        said = without_thoughts(text[-MAX_TEXT:])
        found = self._CALL.findall(said)[:MAX_CALLS]
        requests = tuple(_from_json(call, "arguments", tools) for call in found)
        return Parsed(requests, self._CALL.sub("", said).strip())

    def results(self, texts: Sequence[str]) -> list[Message]:
        return [{"role": "tool", "content": text} for text in texts]


class Llama:
    """The whole turn is `{"name": …, "parameters": {…}}`: Llama 3.1 and later."""

    def opening(
        self, messages: Sequence[Message], tools: Sequence[Tool]
    ) -> tuple[list[Message], list[dict[str, Any]]]:
        return list(messages), [as_function(tool) for tool in tools]

    def parse(self, text: str, tools: Sequence[Tool]) -> Parsed:
        said = text[-MAX_TEXT:].removeprefix("<|python_tag|>").strip()
        if not said.startswith("{"):
            return Parsed((), said)
        return Parsed((_from_json(said, "parameters", tools),), "")

    def results(self, texts: Sequence[str]) -> list[Message]:
        return [{"role": "ipython", "content": "\n".join(texts)}]


class Plain:
    """A line `tool: argument`; the answer is a line `answer: …`. For any template."""

    ANSWER = "answer"
    RESULT = "result"

    def opening(
        self, messages: Sequence[Message], tools: Sequence[Tool]
    ) -> tuple[list[Message], list[dict[str, Any]]]:
        own = [message["content"] for message in messages if message["role"] == "system"]
        rest = [message for message in messages if message["role"] != "system"]
        system = "\n\n".join([self._explained(tools), *own])
        return [{"role": "system", "content": system}, *self._examples(tools), *rest], []

    def _explained(self, tools: Sequence[Tool]) -> str:
        lines = "\n".join(f"{tool.name}: {_argument_help(tool)}" for tool in tools)
        return (
            "You answer questions with the help of tools.\n\n"
            "To use a tool, write one line and nothing else: the tool's name, a colon, and what to"
            f" give it.\n{lines}\n\n"
            "You are then told the result. When you know the answer, write it on one line as:\n"
            f"{self.ANSWER}: the answer in a few words"
        )

    def _examples(self, tools: Sequence[Tool]) -> list[Message]:
        """Worked examples of the tools that bring some: (question, argument, result, answer)."""
        found: list[Message] = []
        for tool in tools:
            for question, argument, result, answer in getattr(tool, "examples", ()):
                found += [
                    {"role": "user", "content": question},
                    {"role": "assistant", "content": f"{tool.name}: {argument}"},
                    *self.results([result]),
                    {"role": "assistant", "content": f"{self.ANSWER}: {answer}"},
                ]
        return found

    def parse(self, text: str, tools: Sequence[Tool]) -> Parsed:
        """The first line that is a call or the answer counts; without one all is an answer."""
        said = without_thoughts(text[-MAX_TEXT:])
        by_name = {tool.name.lower(): tool for tool in tools}
        for line in said.split("\n"):
            name, colon, rest = line.strip().partition(":")
            key = name.strip().lower()
            if colon and key == self.ANSWER:
                return Parsed((), rest.strip())
            if colon and key in by_name:
                return Parsed((_from_line(by_name[key], rest.strip()),), "")
        return Parsed((), said.strip())

    def results(self, texts: Sequence[str]) -> list[Message]:
        return [{"role": "user", "content": f"{self.RESULT}: {text}"} for text in texts]


FORMATS: dict[str, ToolFormat] = {"hermes": Hermes(), "llama": Llama(), "plain": Plain()}


def without_thoughts(text: str) -> str:
    """What follows the last closed thought; a thought that is still open says nothing."""
    _, closed, rest = text.rpartition("</think>")
    return rest if closed else text.partition("<think>")[0]


def _argument_help(tool: Tool) -> str:
    if only_parameter(tool):
        return tool.description
    return f"{tool.description} (give JSON: {json.dumps(tool.parameters.get('properties', {}))})"


def _from_line(tool: Tool, written: str) -> Request:
    name = only_parameter(tool)
    if name:
        if not written:
            return Request(tool.name, problem=f"write what to give it: {tool.name}: …")
        return Request(tool.name, {name: written}, written)
    return _checked(tool.name, written, _loaded(written))


def _from_json(written: str, key: str, tools: Sequence[Tool]) -> Request:
    """The call in a JSON object with "name", and its arguments under `key`."""
    call = _loaded(written)
    if not isinstance(call, dict) or not isinstance(call.get("name"), str):
        return Request("", written=written.strip(), problem="the call is not a JSON object")
    arguments = call.get(key, call.get("arguments", call.get("parameters", {})))
    if isinstance(arguments, str):  # some models write them as text
        arguments = _loaded(arguments)
    name = call["name"]
    if name not in {tool.name for tool in tools}:
        known = ", ".join(tool.name for tool in tools)
        return Request(name[:100], written=written.strip(), problem=f"there is {known}")
    return _checked(name, json.dumps(arguments, ensure_ascii=False), arguments)


def _checked(name: str, written: str, arguments: Any) -> Request:
    if not isinstance(arguments, dict):
        return Request(name, written=written, problem="the arguments must be a JSON object")
    return Request(name, arguments, written)


def _loaded(text: str) -> Any:
    """A JSON value, or None."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None
