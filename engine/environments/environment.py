"""What an environment is, and what it is given."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from ..rewards import Grader, Services
from ..types import Trajectory


@dataclass(frozen=True)
class Reply:
    """An environment's answer to a trajectory's last turn."""

    is_over: bool  # the episode ends here; an observation is then only for people
    observation: str = ""  # text for people and logs
    observation_ids: tuple[int, ...] = ()  # tokens appended before the next turn, mask 0


class Chat(Protocol):
    """The base model's tokenizer and chat template, engine.models.chat.ChatTokenizer."""

    def decode(self, ids: Sequence[int]) -> str: ...

    def encode_message(self, text: str, last_id: int) -> list[int]: ...


@dataclass(frozen=True)
class Context:
    """What an environment may use of the task that a trajectory is of."""

    chat: Chat
    graders: tuple[Grader, ...] = ()  # the task's reward functions
    services: Services = field(default_factory=Services)


class Environment(Protocol):
    """Answers turns. It holds no state of an episode: all of it is in the trajectory and its row,
    so any worker can answer any turn."""

    @property
    def has_turns(self) -> bool:
        """Whether an episode may go on after the first turn; its KV is kept then."""
        ...

    async def answer(self, trajectory: Trajectory, row: dict[str, Any], context: Context) -> Reply:
        """The answer to the last turn; it may wait, and be cancelled.

        Raises: EnvironmentFault if there can be none.
        """
        ...
