"""How long prompts are, and which cannot be used."""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field

from .figures import MAX_LISTED, at_share


@dataclass(frozen=True)
class Lengths:
    """Tokens of the prompts that were looked at, chat template included."""

    num_rows: int  # of the dataset
    num_looked_at: int
    is_cut: bool  # the time was up before all that were chosen had been looked at
    min: int
    median: int
    p95: int
    max: int
    limit: int  # max_prompt_length
    num_over: int
    over_rows: tuple[int, ...]  # the first, from 1
    num_refused: int  # that the chat template refuses
    refused_rows: tuple[int, ...]  # the first, from 1
    refusal: str  # why, for the first

    @property
    def num_usable(self) -> int:
        """Of those looked at."""
        return self.num_looked_at - self.num_over - self.num_refused


@dataclass
class LengthCount:
    """Counts prompts one by one. limit: max_prompt_length."""

    limit: int
    fitting: array[int] = field(default_factory=lambda: array("Q"))  # their rows, from 1
    _lengths: array[int] = field(default_factory=lambda: array("Q"))
    _over: list[int] = field(default_factory=list)
    _num_over: int = 0
    _refused: list[int] = field(default_factory=list)
    _num_refused: int = 0
    _refusal: str = ""

    def add(self, row: int, length: int) -> None:
        """row: its number, from 1."""
        self._lengths.append(length)
        if length <= self.limit:
            self.fitting.append(row)
            return
        self._num_over += 1
        if len(self._over) < MAX_LISTED:
            self._over.append(row)

    def refuse(self, row: int, reason: str) -> None:
        """A row that the chat template cannot write."""
        self._num_refused += 1
        self._refusal = self._refusal or reason
        if len(self._refused) < MAX_LISTED:
            self._refused.append(row)

    def lengths(self, num_rows: int, *, is_cut: bool = False) -> Lengths:
        """What was counted. num_rows: of the dataset."""
        ordered = sorted(self._lengths)
        return Lengths(
            num_rows=num_rows,
            num_looked_at=len(ordered) + self._num_refused,
            is_cut=is_cut,
            min=ordered[0] if ordered else 0,
            median=int(at_share(ordered, 0.5)),
            p95=int(at_share(ordered, 0.95)),
            max=ordered[-1] if ordered else 0,
            limit=self.limit,
            num_over=self._num_over,
            over_rows=tuple(self._over),
            num_refused=self._num_refused,
            refused_rows=tuple(self._refused),
            refusal=self._refusal,
        )
