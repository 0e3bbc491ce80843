"""What an environment is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from ..types import Trajectory


@dataclass(frozen=True)
class Reply:
    """An environment's answer to a trajectory's last turn."""

    is_over: bool  # the episode ends here; an observation is then only for people
    observation: str = ""  # text for people and logs
    observation_ids: tuple[int, ...] = ()  # tokens appended before the next turn, mask 0


class Environment(Protocol):
    """Answers turns. It holds no state of an episode: all of it is in the trajectory and its row,
    so any worker can answer any turn."""

    def answer(self, trajectory: Trajectory, row: dict[str, Any]) -> Reply:
        """The answer to the last turn. Raises: EnvironmentFault if there can be none."""
        ...
