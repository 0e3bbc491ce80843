"""Which environments there are, by the name that a task's settings use (`TaskConfig.environment`,
whose choices are these)."""

from .environment import Environment
from .retry import Retry
from .single_turn import SingleTurn

ENVIRONMENTS: dict[str, Environment] = {"single_turn": SingleTurn(), "retry": Retry()}
