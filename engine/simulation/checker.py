"""What a checker of an invariant is, and how it says that one does not hold."""

from __future__ import annotations

from .cluster import Cluster
from .facts import Fact


class Violation(Exception):
    """An invariant did not hold. `invariant`: its name, as the checker gave it."""

    def __init__(self, invariant: str, what: str) -> None:
        self.invariant, self.what = invariant, what
        super().__init__(f"{invariant}: {what}")


class Checker:
    """One invariant. `see` gets each new fact of the kinds that it wants, `look` runs once after
    each event that changed a row."""

    name = ""
    sees: tuple[type, ...] = ()

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster

    def see(self, fact: Fact) -> None:
        """Check one fact, and remember what later ones must agree with."""

    def look(self, touched: set[str]) -> None:
        """Check the present state. touched: tasks with rows that the last event changed."""

    def require(self, holds: bool, what: str) -> None:
        if not holds:
            raise Violation(self.name, what)
