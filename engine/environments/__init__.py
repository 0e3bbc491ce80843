"""Environments: what answers the policy between its turns, and says when an episode is over."""

from .environment import Environment, Reply
from .registry import ENVIRONMENTS
from .single_turn import SingleTurn

__all__ = ["ENVIRONMENTS", "Environment", "Reply", "SingleTurn"]
