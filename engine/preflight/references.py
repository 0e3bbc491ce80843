"""Whether reference answers can be read, and whether a grader takes each for right.

A reference is written as an answer and graded against itself: what does not score full then never
will, whatever the policy writes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..errors import GraderError
from ..rewards import Grader, Sample, Services, is_pure
from ..rewards.columns import texts_of
from ..rewards.latex import last_box
from ..rewards.math_answer import Math
from ..rewards.multi import Multi
from ..rewards.numeric import Numeric
from ..rewards.pattern import Regex
from ..rewards.string_check import StringCheck
from ..rewards.text_similarity import TextSimilarity
from .figures import MAX_LISTED

FULL = 1.0 - 1e-9  # of graders that compare with a reference
MAX_DISTINCT = 1_000  # counted; more are not told apart
MAX_CHARACTERS = 20_000  # of a reference's end: that is where answers stand
_KEPT_CHARACTERS = 200
# That a right answer alone makes score full; a pattern wants words around it.
_COMPARING = (Math, Numeric, StringCheck, TextSimilarity)
_REFERRING = (*_COMPARING, Regex)  # whose target is a column of answers; others' may be anything


@dataclass(frozen=True)
class References:
    """What was found in the column that a grader compares with."""

    grader: str  # its name; "whole.part" for a part of multi
    column: str
    num_checked: int
    num_unusable: int  # that the grader cannot read
    unusable_rows: tuple[int, ...]  # the first, from 1
    reason: str  # why, for the first
    num_unequal: int  # that do not score full against themselves
    unequal_rows: tuple[int, ...]  # the first, from 1
    num_distinct: int  # different answers, MAX_DISTINCT at most; 0: the column holds something else
    num_like_prompt: int  # that are the prompt itself
    is_rising: bool  # whole numbers, each larger than the one before, as the number of a row is


@dataclass
class ReferenceCount:
    """Looks at a grader's references row by row."""

    grader: Any
    name: str
    _num: int = 0
    _unusable: list[int] = field(default_factory=list)
    _num_unusable: int = 0
    _reason: str = ""
    _unequal: list[int] = field(default_factory=list)
    _num_unequal: int = 0
    _num_like_prompt: int = 0
    _distinct: set[str] = field(default_factory=set)
    _last: int | None = None
    _is_rising: bool = True

    @property
    def column(self) -> str:
        found: str = getattr(self.grader, "target", "")
        return found

    @property
    def is_pure(self) -> bool:
        """Whether `add` may be used; else `add_waiting`."""
        return is_pure(self.grader) or not has_references(self.grader)

    def add(self, row: int, values: Mapping[str, Any]) -> None:
        """Look at a row. row: its number, from 1."""
        forms = self._begin(row, values)
        try:
            if forms and not any(self.grader.score(form, values) >= FULL for form in forms):
                self._unlike(row)
        except GraderError as error:
            self._refuse(row, error)

    async def add_waiting(self, row: int, values: Mapping[str, Any], services: Services) -> None:
        """`add` for a grader that needs services."""
        try:
            forms = self._begin(row, values)
            for form in forms:
                score = await self.grader.score_with(Sample(form, values), services)
                if score >= FULL:
                    return
            if forms:
                self._unlike(row)
        except GraderError as error:
            self._refuse(row, error)

    def _begin(self, row: int, values: Mapping[str, Any]) -> tuple[str, ...]:
        """Note what the reference is; how a right answer may be written, if that is known."""
        self._num += 1
        if not has_references(self.grader):
            if problem := self.grader.row_problem(values):
                self._refuse(row, GraderError(problem))
            return ()
        try:
            texts = texts_of(values, self.column)
        except GraderError as error:
            self._refuse(row, error)
            return ()
        self._look(texts[0], values)
        if isinstance(self.grader, StringCheck) and self.grader.operation == "ne":
            return ()
        if isinstance(self.grader, _COMPARING):
            return written(texts[0])
        if isinstance(self.grader, Regex):
            self.grader.score("", values)  # raises what stands against the reference
        return ()

    def _look(self, text: str, values: Mapping[str, Any]) -> None:
        plain = text.strip()
        if len(self._distinct) < MAX_DISTINCT:
            self._distinct.add(plain[:_KEPT_CHARACTERS])
        self._num_like_prompt += bool(plain) and plain == _asked(values)
        number = int(plain) if plain.isascii() and plain.isdigit() and len(plain) < 19 else None
        if number is None or (self._last is not None and number <= self._last):
            self._is_rising = False
        self._last = number

    def _refuse(self, row: int, error: GraderError) -> None:
        self._num_unusable += 1
        self._reason = self._reason or str(error).partition(": ")[2] or str(error)
        if len(self._unusable) < MAX_LISTED:
            self._unusable.append(row)

    def _unlike(self, row: int) -> None:
        self._num_unequal += 1
        if len(self._unequal) < MAX_LISTED:
            self._unequal.append(row)

    def references(self) -> References:
        return References(
            grader=self.name,
            column=self.column,
            num_checked=self._num,
            num_unusable=self._num_unusable,
            unusable_rows=tuple(self._unusable),
            reason=self._reason,
            num_unequal=self._num_unequal,
            unequal_rows=tuple(self._unequal),
            num_distinct=len(self._distinct),
            num_like_prompt=self._num_like_prompt,
            is_rising=self._is_rising and self._num > self._num_unusable,
        )


def reference_counts(graders: Sequence[Grader]) -> list[ReferenceCount]:
    """One for each grader that needs something of a row, parts of `multi` included."""
    named = [(grader.name, grader) for grader in graders]
    for whole in graders:
        if isinstance(whole, Multi):
            named += [(f"{whole.name}.{part.name}", part) for part in whole.parts]
    return [
        ReferenceCount(one, name)
        for name, one in named
        if has_references(one) or hasattr(one, "row_problem")
    ]


def has_references(grader: Any) -> bool:
    """Whether the grader compares with a column of answers."""
    return isinstance(grader, _REFERRING) and bool(grader.target)


def references_of(grader: Any, values: Mapping[str, Any]) -> tuple[str, ...]:
    """The row's answers that the grader compares with; none where there are none to be read."""
    try:
        return texts_of(values, grader.target) if has_references(grader) else ()
    except GraderError:
        return ()


def written(reference: str) -> tuple[str, ...]:
    r"""How a right answer may stand in a completion: as it is, boxed, or a solution's last line."""
    reference = reference[-MAX_CHARACTERS:]
    box, answer = last_box(reference), reference.rpartition("####")[2].strip()
    short = box if box is not None else answer
    return tuple(dict.fromkeys((reference, short, f"\\boxed{{{short}}}")))


def _asked(values: Mapping[str, Any]) -> str:
    """The prompt's last message, as text; empty if it is none."""
    messages: Any = values.get("messages") or ({},)
    content = messages[-1].get("content")
    return content.strip() if isinstance(content, str) else ""
