"""A formula over the scores of other reward functions."""

from __future__ import annotations

import json
import keyword
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from ..errors import GraderError
from ..parameters import parameter
from .formula import FUNCTIONS, FormulaError, check_formula, formula_value
from .grader import Grader
from .services import Sample, Services

MAX_PARTS = 8
MAX_GRADERS_CHARACTERS = 40_000


@dataclass(frozen=True)
class Multi:
    """What a formula makes of the scores of other reward functions.

    A part that gives no score leaves the whole ungraded. Weights of parts have no meaning here.
    """

    name: str
    weight: float = 1.0
    graders: str = parameter(
        "{}",
        'the parts by name: {"right": {"type": "numeric"}, "short": {"type": "length"}}',
        json=True,
        max_length=MAX_GRADERS_CHARACTERS,
    )
    calculate_output: str = parameter(
        "",
        "formula over the names, such as 0.8 * right + 0.2 * short, with + - * / ^, comparisons"
        f" (1 or 0) and {', '.join(FUNCTIONS)}",
        max_length=500,
    )

    def check(self) -> dict[str, str]:
        """What is wrong with the parameters together, by name; of parts by path."""
        parts = json.loads(self.graders)
        if not 1 <= len(parts) <= MAX_PARTS:
            return {"graders": f"Must have 1 to {MAX_PARTS} parts, not {len(parts)}."}
        errors: dict[str, str] = {}
        for name, item in parts.items():
            if problem := _name_problem(name):
                errors["graders"] = problem
            elif isinstance(item, dict) and item.get("type") == "multi":
                errors[f"graders.{name}.type"] = "A part cannot have parts of its own."
            else:
                _, wrong = _part(name, item)
                errors |= {f"graders.{name}{path}": text for path, text in wrong.items()}
        try:
            check_formula(self.calculate_output, tuple(parts))
        except FormulaError as error:
            errors["calculate_output"] = f"formula_parse_error: {error}"
        return errors

    @property
    def parts(self) -> tuple[Grader, ...]:
        """The reward functions that the formula is over."""
        return _parts(self.graders)

    async def score_with(self, sample: Sample, services: Services) -> float:
        """What the formula gives. Raises: GraderError where that, or a part's score, is nothing."""
        from .grading import grade  # which knows of this module through the registry

        graded = await grade(self.parts, sample, services)
        scores = {name: score for name, score in graded.rewards.items() if score is not None}
        if graded.error:
            raise GraderError(graded.error)
        try:
            return formula_value(self.calculate_output, scores)
        except FormulaError as error:
            raise GraderError(f"python_grader_runtime_error: calculate_output: {error}") from None


@lru_cache(maxsize=256)
def _parts(graders: str) -> tuple[Grader, ...]:
    parts = (_part(name, item)[0] for name, item in json.loads(graders).items())
    return tuple(part for part in parts if part is not None)


def _part(name: str, item: Any) -> tuple[Grader | None, dict[str, str]]:
    """A reward function under this name, or what is wrong with it by path."""
    from .registry import parse_grader  # which lists this module's class

    return parse_grader({**item, "name": name} if isinstance(item, dict) else item)


def _name_problem(name: str) -> str:
    if not name.isidentifier() or keyword.iskeyword(name) or name in FUNCTIONS or len(name) > 50:
        return (
            f"{name[:50]!r} is no name for a part: letters, digits and _, at most 50, not the name"
            " of a function."
        )
    return ""
