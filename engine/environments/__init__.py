"""Environments: what answers the policy between its turns, and says when an episode is over."""

from .environment import Context, Environment, Reply
from .registry import ENVIRONMENTS
from .retry import Retry
from .single_turn import SingleTurn

__all__ = ["ENVIRONMENTS", "Context", "Environment", "Reply", "Retry", "SingleTurn"]
