"""Episodes of the verifiers library (its environments with `load_environment`), one turn at a time.

The library's own rollout runs, with a client of ours in the place of a model server: where it asks
for a completion, it waits until the policy's next turn is here. So what it does between two turns
(`setup_state`, `is_completed`, `env_response`, clean-up) is its own business. All of it runs in one
thread with an event loop of its own, so an environment that blocks holds up no other task.

Only texts cross. The state of an episode is in this process' memory, as the library made it; where
it is missing, the turns that the trajectory has are played again, and must be answered as before.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import OrderedDict
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from ..errors import EnvironmentFault

MAX_EPISODES = 4_000  # whose state is kept; the longest unused one goes first and is played again
MAX_ENVIRONMENTS = 16  # that are loaded, by name and arguments
STEP_S = 120.0  # for what an environment does between two turns, or to score
LOAD_S = 300.0
MAX_OBSERVATION = 100_000  # characters
Message = dict[str, str]
T = TypeVar("T")

log = logging.getLogger(__name__)


@dataclass
class Episode:
    """A rollout of the library that waits for the policy's next turn, or is over."""

    environment: Any
    requests: asyncio.Queue[list[Message]] = field(default_factory=asyncio.Queue)
    turn: asyncio.Future[tuple[str, bool]] | None = None  # text, and whether it was cut off
    rollout: asyncio.Task[Any] | None = None
    seen: list[Message] = field(default_factory=list)  # what the last request showed
    observations: list[str] = field(default_factory=list)  # so far, for each answered turn

    async def completion(self, messages: list[Message]) -> tuple[str, bool]:
        """The policy's next turn; for the client."""
        self.turn = asyncio.get_running_loop().create_future()
        self.requests.put_nowait(messages)
        return await self.turn

    async def wait(self) -> list[Message] | None:
        """What the next request shows; None: the rollout is over. Raises what that raised."""
        assert self.rollout is not None
        asked = asyncio.ensure_future(self.requests.get())
        try:
            await asyncio.wait({asked, self.rollout}, return_when=asyncio.FIRST_COMPLETED)
            if asked.done():
                return asked.result()
        finally:
            asked.cancel()
        self.rollout.result()
        return None

    async def say(self, text: str, is_cut: bool) -> list[Message] | None:
        """Give the policy's turn; the messages that answer it, None where the episode is over."""
        assert self.turn is not None
        self.turn.set_result((text, is_cut))
        shown = await self.wait()
        if shown is None:
            return None
        before = [*self.seen, {"role": "assistant", "content": text}]
        if shown[: len(before)] != before or len(shown) == len(before):
            raise EnvironmentFault(
                "the verifiers environment rewrote the conversation; only one that appends to it"
                " can be trained on, since tokens are never rendered again"
            )
        self.seen = shown
        return shown[len(before) :]

    def end(self) -> None:
        if self.rollout is not None:
            self.rollout.cancel()


class Episodes:
    """Those of this process, in a thread of their own."""

    def __init__(self, open_rollout: Callable[[Episode, Mapping[str, Any]], Any]) -> None:
        """open_rollout: begins the library's rollout of a row for an episode; a coroutine."""
        self._open_rollout = open_rollout
        self._episodes: OrderedDict[str, Episode] = OrderedDict()  # by key, longest unused first
        self._environments: OrderedDict[tuple[str, str], Any] = OrderedDict()
        self._locks: dict[tuple[str, str], asyncio.Lock] = {}
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, name="verifiers", daemon=True).start()

    def __len__(self) -> int:
        return len(self._episodes)

    async def call(self, work: Coroutine[Any, Any, T], limit_s: float) -> T:
        """What a coroutine returns in the thread's loop, awaited in another."""
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            async with asyncio.timeout(limit_s):
                return await asyncio.wrap_future(future)
        except TimeoutError:
            raise EnvironmentFault(
                f"the verifiers environment took longer than {limit_s:g} s"
            ) from None

    async def environment(self, name: str, args: str, load: Callable[[], Any]) -> Any:
        """A loaded environment, made once for the same name and arguments; in the thread's loop."""
        key = (name, args)
        async with self._locks.setdefault(key, asyncio.Lock()):
            if key not in self._environments:
                self._environments[key] = await asyncio.to_thread(load)
            self._environments.move_to_end(key)
            while len(self._environments) > MAX_ENVIRONMENTS:
                self._locks.pop(self._environments.popitem(last=False)[0], None)
            return self._environments[key]

    async def say(
        self,
        key: str,
        environment: Any,
        row: Mapping[str, Any],
        turns: Sequence[tuple[str, bool]],
        observations: Sequence[str],
    ) -> list[Message] | None:
        """The messages that answer the last of an episode's turns; None: it is over.

        turns: text of each, and whether it was cut off. observations: of all but the last.
        """
        episode = self._episodes.pop(key, None)
        if episode is not None and len(episode.observations) != len(turns) - 1:
            episode.end()  # it was answered before and the answer was lost
            episode = None
        try:
            if episode is None:
                episode = await self._begun(environment, row)
                await _replay(episode, turns[:-1], observations)
            answer = await episode.say(*turns[-1])
        except BaseException:
            if episode is not None:
                episode.end()
            raise
        if answer is not None:
            episode.observations.append(told(answer))
        self._keep(key, episode)
        return answer

    async def state(self, key: str) -> Any:
        """The library's state of an episode that is over, which is forgotten here; None: none."""
        episode = self._episodes.pop(key, None)
        if episode is None or episode.rollout is None:
            return None
        try:
            if not episode.rollout.done():  # a limit of ours ended it
                assert episode.turn is not None
                episode.turn.set_exception(EndedError())
                await asyncio.wait({episode.rollout})
            return episode.rollout.result()
        finally:
            episode.end()

    def _keep(self, key: str, episode: Episode) -> None:
        self._episodes[key] = episode
        while len(self._episodes) > MAX_EPISODES:
            _, oldest = self._episodes.popitem(last=False)
            oldest.end()

    async def _begun(self, environment: Any, row: Mapping[str, Any]) -> Episode:
        episode = Episode(environment)
        episode.rollout = asyncio.ensure_future(self._open_rollout(episode, row))
        try:
            shown = await episode.wait()
        except BaseException:
            episode.end()
            raise
        if shown is None:
            raise EnvironmentFault("the verifiers environment ended the episode before any turn")
        episode.seen = shown
        return episode


class EndedError(Exception):
    """No further turn comes."""


async def _replay(
    episode: Episode, turns: Sequence[tuple[str, bool]], observations: Sequence[str]
) -> None:
    """Say again what was said. Raises: EnvironmentFault if it is answered otherwise."""
    for turn, before in zip(turns, observations, strict=True):
        answer = await episode.say(*turn)
        if answer is None or told(answer) != before:
            raise EnvironmentFault(
                "the state of the episode was lost, and the verifiers environment answers its turns"
                " otherwise when they are played again"
            )
        episode.observations.append(before)


def told(messages: Sequence[Message]) -> str:
    """An answer as it is kept with the trajectory, for people and for comparison."""
    return "\n".join(message["content"] for message in messages)[:MAX_OBSERVATION]
