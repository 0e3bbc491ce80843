"""A reward function that is a tenant's own Python, run in a sandbox."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..errors import GraderError
from ..parameters import parameter
from .services import Sample, Services

if TYPE_CHECKING:
    from ..sandbox import Sandboxes

MAX_SOURCE_BYTES = 65_536


@dataclass(frozen=True)
class PythonSource:
    """What your own Python function returns, a number, or None for a completion without a score.

    It is one of: `grade(sample, item)` as OpenAI calls it; `reward(completions, prompts,
    **columns)` as TRL calls it, for many; `reward(prompt, completion, answer, **columns)`, for one.
    It has Python 3.14 with most of the standard library, and neither files, network nor clock.
    Completions that are graded at the same time share an interpreter; later ones have a fresh one.
    """

    name: str
    weight: float = 1.0
    source: str = parameter(
        "", "Python that defines the function", max_length=MAX_SOURCE_BYTES, is_multiline=True
    )
    given: str = parameter(
        "text",
        "what reward functions get of prompts and completions; messages: each as a chat,"
        " which TRL does for conversations",
        choices=("text", "messages"),
    )

    def check(self) -> dict[str, str]:
        """What is wrong with the parameters together, by name. Reads no Python: a sandbox does."""
        if not self.source.strip():
            return {"source": "Must define a function: grade(sample, item), or reward(...)."}
        size = len(self.source.encode())
        if size > MAX_SOURCE_BYTES:
            return {"source": f"Must have at most {MAX_SOURCE_BYTES:,} bytes, not {size:,}."}
        return {}

    async def score_with(self, sample: Sample, services: Services) -> float:
        """The function's number. Raises: GraderError."""
        sandboxes: Sandboxes = services.need("sandboxes")
        call = self.call_of(sample)
        score = await sandboxes.score_one(services.tenant, self.source, call)
        if score.value is None:
            raise GraderError(score.error)
        return score.value

    def call_of(self, sample: Sample) -> dict[str, Any]:
        """What the sandbox is given of a sample."""
        return {
            "completion": sample.completion,
            "row": {name: value for name, value in sample.row.items() if name != "messages"},
            "messages": sample.messages,
            "chat": self.given == "messages",
        }
