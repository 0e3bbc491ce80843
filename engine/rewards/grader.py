"""What a reward function is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol, TypeGuard

from .services import Sample, Services


class Grader(Protocol):
    """A reward function with its parameters set. It has one of two methods that score:

    `score(completion, row) -> float`, where nothing is needed but the two (it is *pure*), or
    `async score_with(sample, services) -> float`, where it waits for something.
    Both raise GraderError where no score can be given (ungraded).
    """

    @property
    def name(self) -> str: ...

    @property
    def weight(self) -> float: ...


def is_pure(grader: Any) -> TypeGuard[PureGrader]:
    """Whether a reward function needs no services."""
    return hasattr(grader, "score")


class PureGrader(Grader, Protocol):
    """A reward function of the completion and its row alone."""

    def score(self, completion: str, row: Mapping[str, Any]) -> float: ...


class ServiceGrader(Grader, Protocol):
    """A reward function that runs something elsewhere: a sandbox, a process, a server."""

    async def score_with(self, sample: Sample, services: Services) -> float: ...
