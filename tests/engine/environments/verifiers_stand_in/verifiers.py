"""Stands for the library verifiers where it is not installed: the same names, the same loop.

Only what the bridge and the test's environments touch. A test that has the library uses that.
"""

from __future__ import annotations

import importlib
import inspect
import logging
import sys
import types
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

__version__ = "0.2.1+stand-in"


class Error(Exception):
    """The library's own."""


class OverlongPromptError(Error):
    """The conversation has no more room."""


@dataclass
class ResponseMessage:
    role: str
    content: str
    finish_reason: str
    is_truncated: bool | None = None


@dataclass
class Response:
    id: str
    created: int
    model: str
    message: ResponseMessage


@dataclass
class Message:
    role: str
    content: str

    def model_dump(self) -> dict[str, Any]:
        return asdict(self)


class Client:
    def __init__(self, client: Any) -> None:
        self.client = client


def stop(condition: Callable[..., Any]) -> Callable[..., Any]:
    condition.is_stop = True  # type: ignore[attr-defined]
    return condition


class Rubric:
    def __init__(self, funcs: list[Any], weights: list[float] | None = None) -> None:
        self.funcs, self.weights = funcs, weights or [1.0] * len(funcs)
        self.logger = logging.getLogger("verifiers.rubrics.rubric.Rubric")

    async def score_rollout(self, state: dict[str, Any]) -> None:
        total = 0.0
        for func, weight in zip(self.funcs, self.weights, strict=True):
            names = inspect.signature(func).parameters
            known = {"completion": state["completion"], "answer": state["answer"], "state": state}
            try:
                value = float(await func(**{name: known[name] for name in names}))
            except Exception as error:
                self.logger.error(f"Error calling reward function {func.__name__}: {error}")
                value = 0.0
            total += weight * value
        state["reward"] = total


class MultiTurnEnv:
    requires_group_rollouts = False
    tool_defs = None

    def __init__(self, dataset: Any, rubric: Rubric, max_turns: int = -1) -> None:
        self.dataset, self.rubric, self.max_turns = dataset, rubric, max_turns
        namespace = sys.modules["verifiers.envs.environment"].signal
        namespace.signal(namespace.SIGTERM, namespace.SIG_DFL)  # as the library takes it

    def get_dataset(self) -> Any:
        return self.dataset

    async def setup_state(self, state: dict[str, Any]) -> dict[str, Any]:
        return state

    async def is_completed(self, state: dict[str, Any]) -> bool:
        if state["error"] or state.get("prompt_too_long"):
            return True
        if 0 < self.max_turns <= len(state["trajectory"]):
            return True
        found = (getattr(self, name) for name in dir(type(self)))
        return any([await one(state) for one in found if getattr(one, "is_stop", False)])

    async def rollout(self, input: Any, client: Any, model: str, sampling_args: Any) -> Any:
        prompt = [Message(one["role"], one["content"]) for one in input["prompt"]]
        state = {**input, "prompt": prompt, "trajectory": [], "error": None, "completion": []}
        state = await self.setup_state(state)
        shown = prompt
        while not await self.is_completed(state):
            try:
                if state["trajectory"]:
                    answer = await self.env_response(shown, state)  # type: ignore[attr-defined]
                    shown = [*shown, *(Message(one["role"], one["content"]) for one in answer)]
                response = await client.get_response(
                    prompt=shown, model=model, tools=None, sampling_args=sampling_args, state=state
                )
                shown = [*shown, Message("assistant", response.message.content)]
                state["trajectory"].append({"completion": shown[-1:]})
            except OverlongPromptError:
                state["prompt_too_long"] = True
            except Error as error:
                state["error"] = error
        state["completion"] = shown[len(prompt) :]
        return state


def load_environment(name: str, **args: Any) -> Any:
    return importlib.import_module(name.replace("-", "_")).load_environment(**args)


_parts = ("clients", "errors", "types", "envs", "envs.environment")
for _name in _parts:
    _module = types.ModuleType(f"verifiers.{_name}")
    _module.__dict__.update(globals())
    sys.modules[f"verifiers.{_name}"] = _module
sys.modules["verifiers.envs"].environment = sys.modules["verifiers.envs.environment"]
