"""The manager: decides what happens next. Pure: no clock, no database, no network."""

from .planner import plan

__all__ = ["plan"]
