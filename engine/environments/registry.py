"""Which environments there are, by the name that a task's settings use."""

from .environment import Environment
from .single_turn import SingleTurn

ENVIRONMENTS: dict[str, Environment] = {"single_turn": SingleTurn()}
