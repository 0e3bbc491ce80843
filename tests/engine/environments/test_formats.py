"""Calls are found as models write them, and whatever else a model writes is no fault of ours."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.environments.calculator import Calculator
from engine.environments.formats import FORMATS, Request, without_thoughts
from engine.environments.search import Search

TOOLS = (Calculator(), Search())


def one(format: str, text: str) -> Request:
    (request,) = FORMATS[format].parse(text, TOOLS).requests
    return request


@pytest.mark.parametrize(
    ("format", "text"),
    [
        ("plain", "search: Danube river"),
        ("plain", "Let me see.\nSearch:  Danube river\nresult: made up\nanswer: no"),
        ("plain", "<think>search: wrong</think>search: Danube river"),
        ("hermes", '<tool_call>\n{"name": "search", "arguments": {"query": "Danube river"}}\n'
                   "</tool_call>"),
        ("hermes", 'I look.<tool_call>{"name": "search", "arguments": "{\\"query\\":'
                   ' \\"Danube river\\"}"}'),
        ("llama", '{"name": "search", "parameters": {"query": "Danube river"}}'),
        ("llama", '<|python_tag|>{"name": "search", "parameters": {"query": "Danube river"}}'),
    ],
)  # fmt: skip
def test_a_call_is_read(format: str, text: str) -> None:
    request = one(format, text)
    assert (request.name, dict(request.arguments)) == ("search", {"query": "Danube river"})
    assert request.problem == ""


def test_several_calls_of_a_turn_are_all_read_in_order() -> None:
    call = '<tool_call>{"name": "calculator", "arguments": {"formula": "%d"}}</tool_call>'
    parsed = FORMATS["hermes"].parse("so: " + call % 1 + call % 2, TOOLS)
    assert [r.arguments["formula"] for r in parsed.requests] == ["1", "2"]
    assert parsed.answer == "so:"


@pytest.mark.parametrize(
    ("format", "text", "problem"),
    [
        ("hermes", "<tool_call>nonsense</tool_call>", "the call is not a JSON object"),
        ("hermes", '<tool_call>{"name": "rm"}</tool_call>', "there is calculator, search"),
        ("llama", '{"name": "search", "parameters": 3}', "the arguments must be a JSON object"),
        ("plain", "search:", "write what to give it: search: …"),
    ],
)
def test_a_call_that_cannot_be_made_says_why(format: str, text: str, problem: str) -> None:
    assert one(format, text).problem == problem


@pytest.mark.parametrize(
    ("format", "text", "answer"),
    [
        ("plain", "answer: the Danube", "the Danube"),
        ("plain", "It is the Danube.", "It is the Danube."),
        ("plain", "research: nothing", "research: nothing"),
        ("hermes", "<think>search</think>\nThe Danube.", "The Danube."),
        ("llama", "The Danube.", "The Danube."),
    ],
)
def test_an_answer_is_read_without_thoughts(format: str, text: str, answer: str) -> None:
    parsed = FORMATS[format].parse(text, TOOLS)
    assert (parsed.requests, parsed.answer) == ((), answer)


def test_an_open_thought_says_nothing() -> None:
    assert without_thoughts("yes <think>search: x") == "yes "
    assert without_thoughts("<think>a</think>b<think>c</think>d") == "d"


pieces = st.sampled_from(
    ["<tool_call>", "</tool_call>", "{", "}", '"name"', ":", '"search"', '"arguments"', "[", "\n",
     "search", "answer", "<think>", "</think>", "\x00", "\ud800", "9" * 5000, '"parameters"', " "]
)  # fmt: skip


@given(st.lists(st.one_of(pieces, st.text(max_size=20)), max_size=30))
def test_nothing_that_a_policy_writes_is_an_error(parts: list[str]) -> None:
    for format in FORMATS.values():
        parsed = format.parse("".join(parts), TOOLS)
        assert isinstance(parsed.answer, str)
        assert all(isinstance(r.name, str) and isinstance(r.problem, str) for r in parsed.requests)


def test_the_plain_opening_keeps_the_tasks_own_system_message() -> None:
    messages: list[dict[str, Any]] = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Which river?"},
    ]
    opened, functions = FORMATS["plain"].opening(messages, TOOLS)
    assert functions == []
    assert opened[0]["content"].endswith("Be brief.")
    assert "calculator: a formula to compute" in opened[0]["content"]
    assert opened[-1] == messages[-1]
    roles = [message["role"] for message in opened]
    assert roles == ["system", *["user", "assistant"] * (2 * 3), "user"]


def test_templates_with_tools_get_functions() -> None:
    for name in ("hermes", "llama"):
        opened, functions = FORMATS[name].opening([{"role": "user", "content": "?"}], TOOLS)
        assert [function["function"]["name"] for function in functions] == ["calculator", "search"]
        assert len(opened) == 1
