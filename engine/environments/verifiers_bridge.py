"""Environments of the library verifiers that the operator names, as environments of ours.

Their code is trusted by the operator and runs in the environment worker. A tenant chooses one and
sets the arguments that the operator leaves open. Its tokens stay ours: the library is given texts
of turns and gives texts that answer them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, ClassVar

from ..errors import EnvironmentFault
from ..parameters import parameter, shown
from ..types import Trajectory, unpack_ids
from . import verifiers_library
from .environment import Chat, Context, Reply
from .registry import ENVIRONMENTS
from .verifiers_episodes import LOAD_S, STEP_S, Episodes, told

NAME = "verifiers"
MAX_ARGS_CHARACTERS = 2_000


@dataclass(frozen=True)
class VerifiersEnvironment:
    """An environment of the library verifiers. Its own score is the reward function environment."""

    has_turns: ClassVar[bool] = True
    open_args: ClassVar[Mapping[str, tuple[str, ...]]] = {}  # that tenants may set, by id

    id: str = parameter("", "which environment")
    args: str = parameter(
        "{}", "its arguments, those that are left open", json=True, max_length=MAX_ARGS_CHARACTERS
    )

    def check(self) -> dict[str, str]:
        """What is wrong with the parameters together, by name."""
        known = self.open_args[self.id]
        wrong = [name for name in json.loads(self.args) if name not in known]
        if not wrong:
            return {}
        there_are = f"there are {', '.join(known)}" if known else "none can be set"
        return {"args": f"{self.id} has no argument {shown(wrong[0])} to set; {there_are}."}

    def encode_prompt(self, messages: Sequence[Mapping[str, Any]], chat: Chat) -> list[int]:
        """The chat as it is: the row was made by the environment, system prompt included."""
        return chat.encode_chat(messages)

    async def answer(self, trajectory: Trajectory, row: dict[str, Any], context: Context) -> Reply:
        """What the library's environment says. Raises: EnvironmentFault."""
        environment = await self._loaded()
        turns = [
            (context.chat.decode(_ids(trajectory, place)), turn.finish_reason != "stop")
            for place, turn in enumerate(trajectory.turns)
        ]
        observations = [turn.observation for turn in trajectory.turns[:-1]]
        work = _episodes().say(_key(trajectory), environment, row, turns, observations)
        messages = await _guarded(work, STEP_S)
        if messages is None:
            return Reply(is_over=True)
        ids = _ids(trajectory, -1)
        observation_ids = context.chat.encode_reply(messages, ids[-1] if ids else -1)
        return Reply(
            is_over=False, observation=told(messages), observation_ids=tuple(observation_ids)
        )

    async def finish(self, trajectory: Trajectory) -> float:
        """The rubric's reward of an episode that is over, which is forgotten here.

        Raises: EnvironmentFault where there is none.
        """
        environment = await self._loaded()
        return await _guarded(_scored(_key(trajectory), environment), STEP_S)

    async def _loaded(self) -> Any:
        def load() -> Any:
            return verifiers_library.load(self.id, json.loads(self.args))

        return await _guarded(_episodes().environment(self.id, self.args, load), LOAD_S)


async def _scored(key: str, environment: Any) -> float:
    state = await _episodes().state(key)
    if state is None:
        raise EnvironmentFault("the state of the episode was lost before it was scored")
    return await verifiers_library.score(environment, state)


async def _guarded(work: Any, limit_s: float) -> Any:
    """What the work returns. Raises: EnvironmentFault, whatever the environment's code raises."""
    try:
        return await _episodes().call(work, limit_s)
    except EnvironmentFault:
        raise
    except Exception as error:
        raise EnvironmentFault(
            f"the verifiers environment failed: {type(error).__name__}: {str(error)[:200]}"
        ) from error


@cache
def _episodes() -> Episodes:
    return Episodes(verifiers_library.rollout)


def _ids(trajectory: Trajectory, place: int) -> list[int]:
    turn = trajectory.turns[place]
    return unpack_ids(trajectory.ids[4 * turn.start : 4 * turn.end])


def _key(trajectory: Trajectory) -> str:
    key = trajectory.key
    return f"{key.task}:{key.group}:{key.attempt}:{key.index}"


def allow_verifiers(allowed: Any) -> None:
    """Let tenants use these environments: ids, or each with the names of arguments left open.

    None: there is no such type. Raises: ValueError with a sentence for the operator.
    """
    listed = dict.fromkeys(allowed, ()) if isinstance(allowed, (list, tuple)) else allowed
    if not isinstance(listed, Mapping) or not all(_is_entry(*entry) for entry in listed.items()):
        raise ValueError(
            'VERIFIERS_ENVIRONMENTS: must be like ["wordle"], or {"wordle": ["difficulty"]} with'
            " the arguments that tenants may set."
        )
    ENVIRONMENTS.pop(NAME, None)
    if not listed:
        return
    ids = tuple(listed)

    @dataclass(frozen=True)
    class Allowed(VerifiersEnvironment):
        open_args: ClassVar[Mapping[str, tuple[str, ...]]] = {
            name: tuple(args) for name, args in listed.items()
        }
        id: str = parameter(ids[0], "which environment", choices=ids)

    Allowed.__doc__ = VerifiersEnvironment.__doc__
    ENVIRONMENTS[NAME] = Allowed


def _is_entry(name: Any, args: Any) -> bool:
    is_list = isinstance(args, (list, tuple)) and all(isinstance(arg, str) for arg in args)
    return isinstance(name, str) and bool(name) and is_list
