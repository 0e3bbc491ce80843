"""What the self-test found: rows of figures, and what they come to. No torch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

HEADINGS = ("check", "what", "figure", "bar", "result")


@dataclass(frozen=True)
class Row:
    """A figure of one check. Without a bar it is only reported."""

    what: str
    value: float | None = None  # None: it could not be measured
    unit: str = ""
    bar: str = ""  # "≤ 0.001"; "": none
    result: str = "ok"  # "ok" | "FAILED" | "skipped"
    reason: str = ""  # why it failed or was skipped
    engine: str = ""
    check: str = ""

    @property
    def is_failed(self) -> bool:
        return self.result == "FAILED"


def reported(what: str, value: float, unit: str) -> Row:
    return Row(what, value, unit)


def at_most(what: str, value: float, unit: str, bar: float, reason: str = "") -> Row:
    """A figure that must not pass `bar`; one that is not a number has failed."""
    return _judged(Row(what, value, unit, f"≤ {bar:.4g}"), value <= bar, reason)


def at_least(what: str, value: float, unit: str, bar: float, reason: str = "") -> Row:
    """A figure that must reach `bar`; one that is not a number has failed."""
    return _judged(Row(what, value, unit, f"≥ {bar:.4g}"), value >= bar, reason)


def failed(what: str, reason: str) -> Row:
    return Row(what, result="FAILED", reason=reason)


def skipped(what: str, reason: str) -> Row:
    return Row(what, result="skipped", reason=reason)


def _judged(row: Row, holds: bool, reason: str) -> Row:
    if holds:
        return row
    return Row(row.what, row.value, row.unit, row.bar, "FAILED", reason)


@dataclass(frozen=True)
class Report:
    """All rows of a machine."""

    model: str
    device: str  # in words
    dtype: str
    rows: tuple[Row, ...]
    seconds: float

    @property
    def is_ok(self) -> bool:
        """Whether something was checked and nothing failed."""
        return any(row.result == "ok" for row in self.rows) and not self.failures

    @property
    def failures(self) -> list[Row]:
        return [row for row in self.rows if row.is_failed]

    def sentence(self) -> str:
        """What it comes to."""
        where = f"{self.model} in {self.dtype} on {self.device}, {self.seconds:.0f} s"
        if self.failures:
            names = "; ".join(f"{row.check}: {row.what}" for row in self.failures)
            return f"{len(self.failures)} of {len(self.rows)} figures FAILED ({names}). {where}."
        if not self.is_ok:
            return f"Nothing could be checked. {where}."
        skips = sum(row.result == "skipped" for row in self.rows)
        but = f", {skips} skipped" if skips else ""
        return f"This machine does what it should{but}. {where}."

    def to_json(self) -> dict[str, Any]:
        """One object: the facts, the verdict and the rows."""
        return {"selftest": self.model, "ok": self.is_ok} | asdict(self)

    def table(self) -> str:
        """For people: a line for each row, and the sentence."""
        lines = [HEADINGS, *(_cells(row) for row in self.rows)]
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        text = ["  ".join(_padded(line, widths)).rstrip() for line in lines]
        return "\n".join([*text, "", self.sentence()])


def _cells(row: Row) -> tuple[str, ...]:
    check = f"{row.engine}: {row.check}" if row.engine else row.check
    figure = "" if row.value is None else f"{row.value:,.4g} {row.unit}".rstrip()
    result = f"{row.result}: {row.reason}" if row.reason else row.result
    return check, row.what, figure, row.bar, result


def _padded(cells: Sequence[str], widths: Sequence[int]) -> list[str]:
    """Figures to the right, words to the left."""
    return [
        cell.rjust(width) if heading == "figure" else cell.ljust(width)
        for heading, cell, width in zip(HEADINGS, cells, widths, strict=True)
    ]
