"""Environments: what answers the policy between its turns, and says when an episode is over."""

from .environment import Environment, Reply, Tools
from .registry import ENVIRONMENTS
from .retry import Retry
from .single_turn import SingleTurn

__all__ = ["ENVIRONMENTS", "Environment", "Reply", "Retry", "SingleTurn", "Tools"]
