"""What an environment is, and what it is given."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from ..rewards import Grader, Services
from ..types import ToolCall, Trajectory


@dataclass(frozen=True)
class Reply:
    """An environment's answer to a trajectory's last turn."""

    is_over: bool  # the episode ends here; an observation is then only for people
    observation: str = ""  # text for people and logs
    observation_ids: tuple[int, ...] = ()  # tokens appended before the next turn, mask 0
    calls: tuple[ToolCall, ...] = ()  # tools that the turn asked for
    answer: str | None = None  # what is graded; None: the text of the last turn
    stop_reason: str = ""  # why it is over; "": as the generation ended


class Chat(Protocol):
    """The base model's tokenizer and chat template, engine.models.chat.ChatTokenizer."""

    @property
    def tool_format(self) -> str:
        """The one of formats.FORMATS that the chat template is made for."""
        ...

    def decode(self, ids: Sequence[int]) -> str: ...

    def cut(self, text: str, max_tokens: int) -> str: ...

    def encode_chat(
        self, messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]] = ()
    ) -> list[int]: ...

    def encode_reply(self, messages: Sequence[Mapping[str, Any]], last_id: int) -> list[int]: ...


@dataclass(frozen=True)
class Context:
    """What an environment may use of the task that a trajectory is of."""

    chat: Chat
    graders: tuple[Grader, ...] = ()  # the task's reward functions
    services: Services = field(default_factory=Services)
    max_turns: int = 1  # of an episode


class Environment(Protocol):
    """Answers turns. It holds no state of an episode: all of it is in the trajectory and its row,
    so any worker can answer any turn. Frozen: it is a setting of its task.

    It may have `check() -> {parameter: what is wrong}`, and `async finish(trajectory) -> float`:
    its own score of an episode that is over, for whatever reason, which the reward function
    `environment` gives. It raises EnvironmentFault where there is none.
    """

    @property
    def has_turns(self) -> bool:
        """Whether an episode may go on after the first turn; its KV is kept then."""
        ...

    def encode_prompt(self, messages: Sequence[Mapping[str, Any]], chat: Chat) -> list[int]:
        """Ids of the prompt, up to where the first turn begins. Raises: ModelError."""
        ...

    async def answer(self, trajectory: Trajectory, row: dict[str, Any], context: Context) -> Reply:
        """The answer to the last turn; it may wait, and be cancelled.

        Raises: EnvironmentFault if there can be none.
        """
        ...
