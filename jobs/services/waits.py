"""What the trajectories of a step wait for, counted and told in a sentence. Pure.

It names stages, and the tools of the task itself; never another tenant.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from engine.environments.activity import TOOL
from jobs.services.joins import Place

MAX_TOLD = 4  # kinds of wait in a sentence
# In the order in which they are told
ORDER = ("tool", "grading", "environment", "generation", "queue", "dispatch")
TEXTS = {
    "grading": "being graded",
    "environment": "with the environment",
    "generation": "being generated",
    "queue": "in a queue",
    "dispatch": "not sent yet",
}


@dataclass(frozen=True)
class Waiting:
    """Trajectories that wait for the same."""

    kind: str  # one of ORDER
    tool: str  # its name, of kind "tool"
    num: int
    longest_s: float | None  # of one of them; None: nobody has noted since when

    @property
    def what(self) -> str:
        """For a sentence."""
        return f"tool call {self.tool}" if self.kind == "tool" else TEXTS[self.kind]


def count_waits(
    places: Iterable[Place], num_unsent: int, kinds: Mapping[str, str], now: float
) -> list[Waiting]:
    """places: of the trajectories in flight. num_unsent: trajectories not sent yet. kinds: of
    workers, by incarnation; a worker that is gone counts as a queue, for it is sent again."""
    found: dict[tuple[str, str], tuple[int, float]] = {}
    for place in places:
        kind, tool, since = _kind(place, kinds)
        num, earliest = found.get((kind, tool), (0, since))
        found[kind, tool] = (num + 1, min(earliest, since))
    waits = [
        Waiting(kind, tool, num, max(0.0, now - since))
        for (kind, tool), (num, since) in found.items()
    ]
    if num_unsent:
        waits.append(Waiting("dispatch", "", num_unsent, None))
    return sorted(waits, key=lambda wait: (ORDER.index(wait.kind), wait.tool))


def _kind(place: Place, kinds: Mapping[str, str]) -> tuple[str, str, float]:
    """(kind, tool, since when)."""
    where, _, name = place.place.partition(":")
    if where == "worker" and kinds.get(name) == "rollout":
        return "generation", "", place.since
    if where == "worker" and kinds.get(name) == "environment":
        what, _, tool = place.what.partition(" ")
        if what == TOOL:
            return "tool", tool, place.what_since
        return what or "environment", "", place.what_since or place.since
    return "queue", "", place.since


def sentence(waits: Iterable[Waiting], total: int) -> str:
    """1 trajectory of 512: tool call search, 47 s. "" if nothing waits."""
    found = list(waits)
    num = sum(wait.num for wait in found)
    if not num:
        return ""
    heading = f"{num:,} {'trajectory' if num == 1 else 'trajectories'} of {total:,}"
    if len(found) == 1:
        return f"{heading}: {found[0].what}{_since(found[0])}"
    parts = [f"{wait.num:,} {wait.what}{_since(wait)}" for wait in found[:MAX_TOLD]]
    more = ["and more"] if len(found) > MAX_TOLD else []
    return f"{heading}: {'; '.join([*parts, *more])}"


def _since(wait: Waiting) -> str:
    if wait.longest_s is None:
        return ""
    longest = "" if wait.num == 1 else "longest "
    return f", {longest}{wait.longest_s:,.0f} s"
