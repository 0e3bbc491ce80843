"""The shapes of reward functions: OpenAI's, TRL's and one call a row; found by what is defined.

A call is {"completion", "row", "messages", "chat"}: the answer, the columns, the prompt as a chat,
and whether prompts and completions are given as chats (as TRL does for conversations) or as text.
A result is a number or a problem.
"""

from __future__ import annotations

import inspect
import json
import math
from collections.abc import Callable
from typing import Any

from problems import Refused, problem

Call = dict[str, Any]
Scorer = Callable[[list[Call]], list[Any]]

NAMES = ("reward", "reward_func")
NO_FUNCTION = (
    "the source defines none of: grade(sample, item), reward(completions, prompts, **columns),"
    " reward(prompt, completion, answer, **fields)"
)


def scorer_of(namespace: dict[str, Any], kind: str) -> Scorer:
    """How the source's function scores all calls. Raises: Refused if there is none to call."""
    if kind != "score":
        run = namespace["run"]
        return lambda calls: [_attempt(lambda call: run(**call), call) for call in calls]
    if callable(namespace.get("grade")):
        grade = namespace["grade"]
        return _each(lambda call: grade(_sample(call), call.get("row") or {}))
    function = _named(namespace)
    accepted = _Parameters(function)
    if accepted.has("completions"):
        return lambda calls: _together(function, accepted, calls)
    return _each(lambda call: function(**accepted.chosen(_fields(call))))


def _named(namespace: dict[str, Any]) -> Callable[..., Any]:
    for name in NAMES:
        if callable(namespace.get(name)):
            found: Callable[..., Any] = namespace[name]
            return found
    public = [
        value
        for name, value in namespace.items()
        if inspect.isfunction(value)
        and not name.startswith("_")
        and value.__module__ == "reward"
        and "completions" in inspect.signature(value).parameters
    ]
    if len(public) > 1:
        names = ", ".join(value.__name__[:40] for value in public[:5])
        raise Refused(f"several functions take completions ({names}): name one of them reward")
    if not public:
        raise Refused(NO_FUNCTION)
    return public[0]


class _Parameters:
    """Which arguments a function takes by name."""

    def __init__(self, function: Callable[..., Any]) -> None:
        kinds = inspect.signature(function).parameters.values()
        self._open = any(p.kind is p.VAR_KEYWORD for p in kinds)
        named = [p for p in kinds if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
        self._names = {p.name for p in named}
        self._needed = [p.name for p in named if p.default is p.empty]

    def has(self, name: str) -> bool:
        return name in self._names

    def chosen(self, available: dict[str, Any]) -> dict[str, Any]:
        """What of it the function takes. Raises: Refused if it needs something else."""
        for name in self._needed:
            if name not in available:
                raise Refused(
                    f"the function asks for {name!r}, and the row has no such column",
                    "invalid_variable_error",
                )
        if self._open:
            return available
        return {name: value for name, value in available.items() if name in self._names}


def _sample(call: Call) -> dict[str, Any]:
    """OpenAI's `sample`."""
    text = call["completion"]
    parsed = None
    if text.lstrip()[:1] in ("{", "["):
        try:
            parsed = json.loads(text)
        except (ValueError, RecursionError):
            parsed = None
    return {"output_text": text, "output_json": parsed, "messages": call.get("messages") or []}


def _prompt(call: Call) -> Any:
    """What the user said last, or the whole chat."""
    messages = call.get("messages") or []
    if call.get("chat"):
        return messages
    said = [message.get("content") for message in messages if message.get("role") == "user"]
    return said[-1] if said and isinstance(said[-1], str) else ""


def _completion(call: Call) -> Any:
    text = call["completion"]
    return [{"role": "assistant", "content": text}] if call.get("chat") else text


def _fields(call: Call) -> dict[str, Any]:
    row = call.get("row") or {}
    said = {"prompt": _prompt(call), "completion": _completion(call)}
    return {"messages": call.get("messages") or [], **row, **said}


def _each(function: Callable[[Call], Any]) -> Scorer:
    return lambda calls: [_attempt(lambda one: _number(function(one)), call) for call in calls]


def _together(function: Callable[..., Any], accepted: _Parameters, calls: list[Call]) -> list[Any]:
    """One call for all; where that fails, one for each, so that a bad row costs only itself."""
    if not calls:
        return []
    try:
        scores = list(function(**accepted.chosen(_columns(calls))))
    except BaseException as error:
        if len(calls) == 1:
            return [problem(error)]
        return [_together(function, accepted, [call])[0] for call in calls]
    if len(scores) != len(calls):
        wrong = Refused(f"the function returned {len(scores)} scores for {len(calls)} completions")
        return [problem(wrong)] * len(calls)
    return [_attempt(_number, score) for score in scores]


def _columns(calls: list[Call]) -> dict[str, Any]:
    names = {name: None for call in calls for name in call.get("row") or {}}
    columns = {name: [(call.get("row") or {}).get(name) for call in calls] for name in names}
    messages = [call.get("messages") or [] for call in calls]
    prompts, completions = [_prompt(c) for c in calls], [_completion(c) for c in calls]
    return {"messages": messages, **columns, "prompts": prompts, "completions": completions}


def _attempt(function: Callable[[Any], Any], argument: Any) -> Any:
    try:
        return function(argument)
    except BaseException as error:
        return problem(error)


def _number(value: Any) -> float:
    if value is None:
        raise Refused("the function returned None, so the completion stays ungraded")
    if not isinstance(value, (int, float)):
        raise Refused(f"the function must return a number, not {str(type(value).__name__)[:80]}")
    try:
        number = float(value)
    except OverflowError:
        raise Refused("the score is too large") from None
    if not math.isfinite(number):
        raise Refused(f"the score is {number}, not a finite number")
    return number
