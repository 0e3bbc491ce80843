"""All that a check found, in one piece."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from ..config import TaskConfig
from .costs import Costs
from .lengths import Lengths
from .notes import notes
from .other_columns import OtherColumn
from .outcomes import Samples
from .problem import Problem
from .references import References
from .variance import ZeroVariance


@dataclass(frozen=True)
class Report:
    """Figures. None or empty where that part was not reached, or there was nothing to look at."""

    config: TaskConfig
    lengths: Lengths
    references: tuple[References, ...] = ()
    samples: Samples | None = None
    zero_variance: ZeroVariance | None = None
    costs: Costs | None = None
    other_columns: tuple[OtherColumn, ...] = ()
    tool_format: str = ""  # in which calls were read; empty: no tools
    template_problems: tuple[str, ...] = ()  # against episodes of several turns
    template_notes: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()  # what was not looked at, and why
    examples: tuple[dict[str, Any], ...] = field(default=())

    @property
    def observations(self) -> str:
        """What answers of the environment are called."""
        return "tool results" if self.tool_format else "the environment's answers"

    def to_json(self, problems: Sequence[Problem]) -> dict[str, Any]:
        """Plain values; what is wrong first."""
        found = asdict(self)
        config = found.pop("config")
        kept = ("batch_size", "group_size", "max_steps", "max_completion_length", "max_turns")
        return {
            "problems": [asdict(problem) for problem in problems],
            "config": {name: config[name] for name in kept},
            "notes": notes(self.samples, self.zero_variance, self.costs, self.observations),
            **found,
        }
