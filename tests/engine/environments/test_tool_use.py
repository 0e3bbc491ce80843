"""Calls are made, limited and told; what goes wrong is told, too, and never ends the episode."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, cast

import pytest

from engine.environments import Context, Reply, ToolError, ToolUse
from engine.rewards import Services
from engine.types import Trajectory, unpack_ids
from tests.engine.environments.chats import Letters, answered, said


@dataclass(frozen=True)
class Echo:
    """Tells what it was given, or fails in the way that it was given."""

    name: str = "echo"
    given: list[Any] = field(default_factory=list, compare=False)
    description: ClassVar[str] = "what to echo"
    parameters: ClassVar[dict[str, Any]] = {
        "type": "object",
        "properties": {"text": {"type": "string"}},
        "required": ["text"],
    }

    async def call(self, arguments: Mapping[str, Any], services: Services) -> str:
        text = arguments["text"]
        self.given.append((text, services.episode))
        if text == "hang":
            await asyncio.sleep(60)
        if text == "fail":
            raise ToolError("no luck")
        if text == "crash":
            raise ZeroDivisionError("secret of the server")
        return text * 1000 if text == "long" else text.upper()


def answer(environment: ToolUse, trajectory: Trajectory, **fields: Any) -> Reply:
    context = Context(cast(Any, Letters()), **{"max_turns": 9, **fields})
    return asyncio.run(environment.answer(trajectory, {}, context))


def test_a_call_is_answered_with_its_result() -> None:
    echo = Echo()
    reply = answer(ToolUse((echo,)), said("echo: hello"))
    assert not reply.is_over
    assert reply.observation == "HELLO"
    assert Letters().decode(reply.observation_ids) == "\nuser|result: HELLO\n"
    ((call,), (given,)) = reply.calls, echo.given
    assert (call.name, call.arguments, call.error) == ("echo", "hello", "")
    assert given == ("hello", "g:1:0")


def test_what_is_no_call_is_the_answer_and_the_end() -> None:
    reply = answer(ToolUse((Echo(),)), said("I think so.\nanswer: 42 \nmore"))
    assert reply == Reply(is_over=True, answer="42")
    assert answer(ToolUse((Echo(),)), said("just 42")).answer == "just 42"


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("fail", "no luck"),
        ("crash", "echo failed"),
        ("hang", "echo took longer than 0.05 s"),
    ],
)
def test_a_call_that_fails_is_told_and_the_episode_goes_on(text: str, error: str) -> None:
    reply = answer(ToolUse((Echo(),), tool_timeout_s=0.05), said(f"echo: {text}"))
    assert (reply.is_over, reply.observation) == (False, f"error: {error}")
    assert reply.calls[0].error == error
    assert reply.calls[0].duration_s >= (0.05 if text == "hang" else 0.0)


def test_a_result_is_cut_to_its_tokens() -> None:
    reply = answer(ToolUse((Echo(),), max_observation_length=20), said("echo: long"))
    assert reply.observation == "longlonglonglonglong…"


def test_a_turn_that_was_cut_off_calls_nothing() -> None:
    echo = Echo()
    assert answer(ToolUse((echo,)), said("echo: hel", finish_reason="length")).is_over
    assert echo.given == []


@pytest.mark.parametrize(
    ("limits", "max_turns", "reason"),
    [
        ({"max_tool_calls": 1}, 9, "tool_calls"),
        ({"max_tool_seconds": 0.0001}, 9, "tool_seconds"),
        ({}, 2, "turns"),
        ({}, 3, ""),
    ],
)
def test_limits_of_an_episode_end_it_with_their_name(
    limits: dict[str, Any], max_turns: int, reason: str
) -> None:
    environment = ToolUse((Echo(),), **limits)
    first = said("echo: hang" if "max_tool_seconds" in limits else "echo: a")
    environment = ToolUse((Echo(),), tool_timeout_s=0.05, **limits)
    once = answered(first, answer(environment, first, max_turns=max_turns))
    reply = answer(environment, said("echo: b", once), max_turns=max_turns)
    assert (reply.is_over, reply.stop_reason) == (bool(reason), reason)


def test_a_tenants_calls_share_its_slots() -> None:
    """With one slot the second call waits for the first, and its time is its own."""

    async def both() -> list[Reply]:
        services = Services(tool_slots=asyncio.Semaphore(1))
        context = Context(cast(Any, Letters()), services=services, max_turns=9)
        environment = ToolUse((Echo(),), tool_timeout_s=0.2)
        turns = [said("echo: hang"), said("echo: a")]
        return await asyncio.gather(*(environment.answer(t, {}, context) for t in turns))

    slow, quick = asyncio.run(both())
    assert slow.calls[0].error and not quick.calls[0].error


@dataclass(frozen=True)
class Add:
    """A tool with two parameters."""

    name: str = "add"
    description: ClassVar[str] = "adds"
    parameters: ClassVar[dict[str, Any]] = {
        "type": "object",
        "properties": {"a": {"type": "number"}, "b": {"type": "integer"}},
        "required": ["a", "b"],
    }

    async def call(self, arguments: Mapping[str, Any], services: Services) -> str:
        return str(arguments["a"] + arguments["b"])


@pytest.mark.parametrize(
    ("written", "told"),
    [
        ('add: {"a": 1.5, "b": 2}', "3.5"),
        ('add: {"a": 1.5}', "error: add needs b"),
        ('add: {"a": "x", "b": 2}', "error: a must be of type number"),
        ('add: {"a": 1, "b": true}', "error: b must be of type integer"),
        ('add: {"a": 1, "b": 2, "c": 3}', "error: add takes a, b, not c"),
        ("add: 1 and 2", "error: add: the arguments must be a JSON object"),
        ("echo:", "error: echo: write what to give it: echo: …"),
    ],
)
def test_arguments_are_checked_before_a_tool_is_called(written: str, told: str) -> None:
    assert answer(ToolUse((Add(), Echo())), said(written)).observation == told


def test_what_was_generated_and_what_was_observed_is_all_there_is() -> None:
    environment = ToolUse((Echo(),))
    trajectory = said("echo: a")
    parts = [unpack_ids(trajectory.ids)]
    for text in ("echo: bb", "answer: c"):
        reply = answer(environment, trajectory)
        trajectory = said(text, answered(trajectory, reply))
        parts += [list(reply.observation_ids), list(map(ord, text))]
    assert unpack_ids(trajectory.ids) == [id for part in parts for id in part]
    generated = [len("echo: a"), len("echo: bb"), len("answer: c")]
    mask = [1] * generated[0]
    for observed, count in zip(parts[1::2], generated[1:], strict=True):
        mask += [0] * len(observed) + [1] * count
    assert list(trajectory.mask) == mask
