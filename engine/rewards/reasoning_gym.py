"""The completion is scored as the library reasoning-gym scores answers to the row's problem.

Rows are those that its generators made: what the library keeps with a problem is all that its
scorer needs. The scorer is ours to run and the text is the policy's, so it runs in a process of its
own (`workers.py`), and only for tasks whose scorer was read: some evaluate text as Python.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..errors import GraderError
from ..parameters import parameter, shown
from .reasoning_gym_tasks import REFUSED, TASKS
from .services import Sample, Services
from .workers import WorkerError, WorkerOverrunError

MAX_TEXT_CHARACTERS = 50_000  # of an answer; a longer one is none
TIMEOUT_S = 4.0  # of processor time; loading the library takes one, a score a thousandth
OPENING, CLOSING = "<answer>", "</answer>"


@dataclass(frozen=True)
class ReasoningGym:
    """What reasoning-gym's own scorer gives: mostly 1 for a right answer, some give parts of it.

    For datasets that are generated with reasoning-gym. Their columns metadata and answer are what
    its scorers read. Tasks whose scorer would run the completion as code are refused.
    """

    name: str
    weight: float = 1.0
    target: str = parameter("reasoning_gym", "column with the name of the problem's task")
    extract: str = parameter(
        "whole",
        "what is scored: the whole completion, or the last <answer>…</answer> in it",
        choices=("whole", "answer_tag"),
    )

    def row_problem(self, row: Mapping[str, Any]) -> str:
        """Why no completion of this row can be scored; empty if that is not known before."""
        try:
            self._entry(row)
        except GraderError as error:
            return str(error).partition(": ")[2]
        return ""

    async def score_with(self, sample: Sample, services: Services) -> float:
        """The scorer's value. Raises: GraderError if the row cannot be scored."""
        task, entry = self._entry(sample.row)
        answer = self._answer(sample.completion)
        if answer is None or len(answer) > MAX_TEXT_CHARACTERS:
            return 0.0
        arguments = {"task": task, "answer": answer, "entry": entry}
        try:
            score = await self._ask("reasoning_gym", arguments, services)
        except WorkerOverrunError:
            score = await self._blame(task, entry, services)
        if score is None:
            raise self._unusable(f"says {task}, whose scorer can do nothing with the row")
        return float(score)

    def _answer(self, completion: str) -> str | None:
        if self.extract == "whole":
            return completion.strip()
        before, closed, _ = completion.rpartition(CLOSING)
        _, opened, answer = before.rpartition(OPENING)
        return answer.strip() if closed and opened else None

    def _entry(self, row: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
        """The row's task and what its scorer is given. Raises: GraderError."""
        if self.target not in row:
            raise GraderError(f"invalid_variable_error: the row has no column {shown(self.target)}")
        value = row[self.target]
        task = value.get("task") if isinstance(value, Mapping) else value
        if not isinstance(task, str) or task not in TASKS:
            reason = REFUSED.get(task, "") if isinstance(task, str) else ""
            raise self._unusable(
                f"says {task}, which cannot be scored here: {reason}"
                if reason
                else f"holds {shown(value)}, which names no task of reasoning-gym"
            )
        metadata = row.get("metadata")
        if not isinstance(metadata, Mapping):
            raise GraderError(
                "invalid_variable_error: the column metadata must hold what reasoning-gym keeps"
                f" with a problem, not {shown(metadata)}"
            )
        return task, {"answer": row.get("answer"), "metadata": metadata}

    async def _ask(self, function: str, arguments: dict[str, Any], services: Services) -> Any:
        try:
            return await services.need("workers").run(
                function, arguments, TIMEOUT_S, services.tenant
            )
        except WorkerOverrunError:
            raise
        except WorkerError as error:
            raise GraderError(f"python_grader_server_error: {error}") from None

    async def _blame(self, task: str, entry: dict[str, Any], services: Services) -> float | None:
        """0 if the row by itself takes little time, so that the completion was too much."""
        try:
            arguments = {"task": task, "entry": entry}
            is_usable = await self._ask("reasoning_gym_is_usable", arguments, services)
        except WorkerOverrunError:
            raise GraderError(
                f"unresponsive_reward_error: the scorer of {task} took longer than {TIMEOUT_S:g} s"
                " for the row alone"
            ) from None
        return 0.0 if is_usable else None

    def _unusable(self, what: str) -> GraderError:
        return GraderError(f"invalid_variable_error: column {shown(self.target)} {what}")
