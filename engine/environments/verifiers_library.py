"""What is known of the library verifiers: loading its environments, its rollouts, its scores.

For releases 0.2 and 0.3, whose environments answer a conversation (`load_environment`, rubric).
Release 0.4 has no such thing: its environments are programs that call a model server by themselves,
in containers, and nothing there takes one turn and gives the next prompt.
"""

from __future__ import annotations

import logging
import signal
import time
from collections.abc import Iterator, Mapping, Sequence
from contextvars import ContextVar
from functools import cache
from types import SimpleNamespace
from typing import Any

from ..errors import EnvironmentFault
from .verifiers_episodes import EndedError, Episode, Message

_failures: ContextVar[list[str] | None] = ContextVar("failures", default=None)


def load(name: str, args: Mapping[str, Any]) -> Any:
    """An installed environment. Raises: EnvironmentFault if it cannot be used here."""
    verifiers = _library()
    try:
        found = verifiers.load_environment(name, **args)
    except Exception as error:
        raise EnvironmentFault(f"the verifiers environment {name} does not load: {error}") from None
    if getattr(found, "tool_defs", None):
        raise EnvironmentFault(
            f"the verifiers environment {name} has tools of its own, which are not offered here:"
            " only texts cross"
        )
    if getattr(found, "requires_group_rollouts", False):
        raise EnvironmentFault(
            f"the verifiers environment {name} scores groups, and episodes are scored one by one"
        )
    return found


def rows(environment: Any) -> Iterator[dict[str, Any]]:
    """The environment's dataset as rows of ours: a chat under `messages`, and the other columns."""
    for row in environment.get_dataset():
        messages = _plain(row["prompt"])
        yield {"messages": messages, **{k: v for k, v in row.items() if k != "prompt"}}


async def rollout(episode: Episode, row: Mapping[str, Any]) -> Any:
    """The library's own rollout of a row, its model being the episode."""
    values = {key: value for key, value in row.items() if key != "messages"}
    values = {"answer": "", "info": {}, "example_id": 0, **values, "prompt": row["messages"]}
    client = _client_class()(episode)
    return await episode.environment.rollout(values, client, "policy", {})


async def score(environment: Any, state: Any) -> float:
    """What the rubric gives. Raises: EnvironmentFault where it gives nothing.

    The library takes a reward function that failed for one that gave 0, and only logs it; a failure
    is no score here, so its log is listened to.
    """
    if state.get("error") is not None:
        raise EnvironmentFault(f"the verifiers environment failed: {state['error']!r}"[:300])
    failures: list[str] = []
    _listen()
    token = _failures.set(failures)
    try:
        await environment.rubric.score_rollout(state)
    finally:
        _failures.reset(token)
    if failures:
        raise EnvironmentFault(f"the environment's rubric failed: {failures[0]}"[:300])
    if state.get("reward") is None:
        raise EnvironmentFault("the environment's rubric gives no reward")
    return float(state["reward"])


class _Listener(logging.Handler):
    """Keeps what the library says went wrong, for who asked it to score."""

    def emit(self, record: logging.LogRecord) -> None:
        found = _failures.get()
        if found is not None:
            found.append(record.getMessage())


@cache
def _listen() -> None:
    logging.getLogger("verifiers").addHandler(_Listener(logging.ERROR))


@cache
def _library() -> Any:
    try:
        import verifiers
    except ImportError as error:
        raise EnvironmentFault(
            f"the library verifiers cannot be imported in this environment worker: {error}"
        ) from None
    if not hasattr(verifiers, "load_environment"):
        release = getattr(verifiers, "__version__", "this")
        raise EnvironmentFault(
            f"verifiers {release} has no environments that answer turns; install 0.2 or 0.3"
        )
    _keep_signals()
    return verifiers


def _keep_signals() -> None:
    """Each of the library's environments takes SIGINT and SIGTERM of the whole process for itself,
    and cannot be made outside its main thread. A worker has its own handlers."""
    from verifiers.envs import environment

    environment.signal = SimpleNamespace(**{**vars(signal), "signal": lambda *_: None})


@cache
def _client_class() -> Any:
    from verifiers.clients import Client
    from verifiers.errors import OverlongPromptError
    from verifiers.types import Response, ResponseMessage

    class EpisodeClient(Client):  # type: ignore[misc]
        """A model server that is the policy's next turn."""

        def __init__(self, episode: Episode) -> None:
            super().__init__(episode)
            self._episode = episode

        async def get_response(
            self, prompt: Any, model: str, sampling_args: Any, tools: Any = None, **kwargs: Any
        ) -> Any:
            if tools:
                raise EnvironmentFault("the row brings tools, which are not offered here")
            try:
                text, is_cut = await self._episode.completion(_plain(prompt))
            except EndedError:  # the library's own word for an episode that has no more room
                raise OverlongPromptError("the episode is at its limit") from None
            message = ResponseMessage(
                role="assistant",
                content=text,
                finish_reason="length" if is_cut else "stop",
                is_truncated=is_cut,
            )
            return Response(id="turn", created=int(time.time()), model=model, message=message)

        def _unused(self, *args: Any, **kwargs: Any) -> Any:
            raise NotImplementedError("this client is asked for responses alone")

        setup_client = to_native_tool = to_native_prompt = get_native_response = _unused
        raise_from_native_response = from_native_response = close = _unused

    return EpisodeClient


def _plain(messages: Sequence[Any]) -> list[Message]:
    """Messages as roles and texts. Raises: EnvironmentFault if they are more than that."""
    if isinstance(messages, str):
        raise EnvironmentFault("the verifiers environment does not use chat messages")
    return [_message(message) for message in messages]


def _message(message: Any) -> Message:
    values = message if isinstance(message, Mapping) else message.model_dump()
    content = values.get("content") or ""
    if not isinstance(content, str):
        parts = [part if isinstance(part, Mapping) else part.model_dump() for part in content]
        if any(part.get("type") != "text" for part in parts):
            raise EnvironmentFault("the verifiers environment shows more than text")
        content = "".join(part["text"] for part in parts)
    return {"role": str(values["role"]), "content": content}
