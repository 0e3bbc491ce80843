"""The completion's answer is mathematically equal to the reference.

Equality is decided by math-verify, in a process of its own (`workers.py`): sympy can be made to
run for ever. Numbers that are plainly equal are not sent there.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from ..errors import GraderError
from ..parameters import parameter
from .columns import text_of, unusable
from .latex import last_box
from .numeric import read_reference
from .quantities import read_quantity
from .services import Sample, Services
from .workers import WorkerError, WorkerOverrunError

MAX_TEXT_CHARACTERS = 20_000  # of the completion's end: that is where answers stand
MAX_GOLD_CHARACTERS = 2_000
TIMEOUT_S = 2.0  # of processor time; an ordinary answer takes a thousandth of it
_DIGITS = str.maketrans({"−": "-", **{chr(0xFF10 + n): str(n) for n in range(10)}})


@dataclass(frozen=True)
class Math:
    r"""1 if the completion's answer equals the reference as mathematics, else 0.

    The answer is taken from the last \boxed{}, else from the last formula or number. The reference
    is LaTeX, an expression or a number, or a worked solution with \boxed{} or "#### answer". An
    answer that cannot be read or compared in the time that there is scores 0: that is the policy's
    doing. A reference that cannot be read leaves the completion ungraded.
    """

    name: str
    weight: float = 1.0
    target: str = parameter("answer", "column with the reference answer")

    async def score_with(self, sample: Sample, services: Services) -> float:
        """0 or 1. Raises: GraderError if the row has no usable reference answer."""
        text = text_of(sample.row, self.target)
        if len(text) > MAX_GOLD_CHARACTERS:
            text = text[-MAX_GOLD_CHARACTERS:] if "####" in text or "\\boxed" in text else ""
        completion = sample.completion[-MAX_TEXT_CHARACTERS:].translate(_DIGITS)
        number = _reference_number(text)
        if number is not None and number == _stated_number(completion):
            return 1.0
        gold = str(number) if number is not None else text.rpartition("####")[2].strip()
        score = await self._ask(gold, completion, services) if gold else None
        if score is None:
            raise unusable(self.target, text, "which is no expression")
        return score

    async def _ask(self, gold: str, completion: str, services: Services) -> float | None:
        """0 or 1; None if the reference is no expression."""
        workers = services.need("workers")
        arguments = {"gold": gold, "completion": completion}
        try:
            return await workers.run("math", arguments, TIMEOUT_S, services.tenant)  # type: ignore[no-any-return]
        except WorkerOverrunError:
            return await self._blame(gold, services)
        except WorkerError as error:
            raise GraderError(f"python_grader_server_error: {error}") from None

    async def _blame(self, gold: str, services: Services) -> float | None:
        """0 if the reference by itself can be read in time, so that the completion was too much."""
        workers = services.need("workers")
        try:
            arguments = {"gold": gold}
            is_readable = await workers.run(
                "math_is_readable", arguments, TIMEOUT_S, services.tenant
            )
        except WorkerOverrunError:
            raise GraderError(
                f"unresponsive_reward_error: the reference in column {self.target!r} could not be"
                f" read within {TIMEOUT_S:g} s"
            ) from None
        except WorkerError as error:
            raise GraderError(f"python_grader_server_error: {error}") from None
        return 0.0 if is_readable else None


def _reference_number(text: str) -> Fraction | None:
    quantity = read_reference(text, "point")
    return quantity.value if quantity else None


def _stated_number(completion: str) -> Fraction | None:
    """The number that the completion says to be its answer, if that is nothing but a number."""
    answer = last_box(completion)
    if answer is None:
        answer = completion.rpartition("####")[2]
    quantity = read_quantity(answer, "point")
    return quantity.value if quantity else None
