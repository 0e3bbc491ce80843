"""The score that the task's environment gives by itself, for those that know how it went."""

from __future__ import annotations

from dataclasses import dataclass

from ..errors import GraderError
from .services import Sample, Services


@dataclass(frozen=True)
class EnvironmentScore:
    """What the environment itself says of the episode, such as the rubric of verifiers.

    Environments that say nothing of it leave the completion ungraded.
    """

    name: str
    weight: float = 1.0

    async def score_with(self, sample: Sample, services: Services) -> float:
        """The environment's score. Raises: GraderError if it gave none."""
        if sample.environment_score is not None:
            return sample.environment_score
        why = sample.environment_error or "the environment of this task gives no score of its own"
        raise GraderError(f"python_grader_runtime_error: {why}")
