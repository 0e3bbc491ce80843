"""One base class, one subclass per boundary crossed.

Code inside a boundary raises plain errors; one place (the stage call, the form, the endpoint)
attributes them. The text is what a person reads: what is wrong, where, and what to do.
"""

from collections.abc import Sequence


class MarlaasError(Exception):
    """Base of every error that has an owner: a tenant's input, or a part of the machine."""


class SpecError(MarlaasError):
    """A task's settings are wrong. `fields` maps a field's name to its messages."""

    def __init__(self, fields: dict[str, list[str]]) -> None:
        self.fields = fields
        super().__init__("; ".join(f"{name}: {' '.join(texts)}" for name, texts in fields.items()))


class QuotaError(MarlaasError):
    """A tenant asks for more than its quota allows."""


class DatasetError(MarlaasError):
    """Rows that cannot be used.

    `lines` has (line number from 1, or 0 for the whole file; what is wrong there), the first
    hundred; `num_bad_lines` counts all.
    """

    def __init__(
        self, message: str, lines: Sequence[tuple[int, str]] = (), num_bad_lines: int = 0
    ) -> None:
        self.lines = tuple(lines)
        self.num_bad_lines = max(num_bad_lines, len(self.lines))
        super().__init__(message)


class GraderError(MarlaasError):
    """A reward function failed or answered with something that is no score."""


class EnvironmentFault(MarlaasError):
    """An environment or a tool of it failed."""


class RolloutError(MarlaasError):
    """Generation failed, or an adapter is unknown to the engine."""


class TrainingError(MarlaasError):
    """A training step was refused: non-finite numbers, or trajectories of another version."""


class ArtifactError(MarlaasError):
    """An artifact is missing, damaged, or could not be written."""


class ModelError(MarlaasError):
    """A base model cannot be loaded or is of an unsupported kind."""
