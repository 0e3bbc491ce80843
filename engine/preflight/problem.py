"""One thing that is wrong with a task, in plain words."""

from __future__ import annotations

from dataclasses import dataclass

SEVERITIES = ("error", "warning", "note")  # error: training would be of no use, or could not begin


@dataclass(frozen=True)
class Problem:
    """What is wrong, and how to mend it."""

    severity: str  # of SEVERITIES
    code: str  # stable, for programs
    sentence: str  # what is wrong, and where
    fix: str  # what to do
