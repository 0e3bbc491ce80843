"""One run: settings, a planner and a store in; a report, or a failure that can be replayed, out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import get_args

from engine.manager import plan as shipped_plan

from .checker import Checker, Violation
from .cluster import Cluster, Plan
from .facts import Fact
from .invariants import checkers
from .scenario import Scenario, Settings
from .store import Store

LIVENESS_S = 1800.0  # virtual seconds after healing, within which every task must have ended
LIVENESS = "liveness"


@dataclass(frozen=True)
class Report:
    """What a run without a violation came to."""

    seed: int
    num_events: int
    elapsed_s: float  # virtual
    outcomes: dict[str, int]  # tasks by final state
    num_versions: int
    num_late: int  # results of earlier attempts, dropped
    num_refused: int  # trajectories of another adapter, refused


class SimulationFailure(Exception):
    """A violated invariant, with what replays it and the last events."""

    def __init__(self, settings: Settings, violation: Violation, trace: list[str]) -> None:
        self.settings, self.invariant, self.what = settings, violation.invariant, violation.what
        lines = [
            f"seed {settings.seed} violates invariant {violation}",
            *trace,
            f"replay: python -m engine.simulation {settings.arguments}",
        ]
        super().__init__("\n".join(lines))


def run(
    settings: Settings | int,
    *,
    plan: Plan = shipped_plan,
    store: Store | None = None,
    scenario: Scenario | None = None,
) -> Report:
    """Run a cluster with faults, heal it, and wait until every task has ended.

    settings: a number is the seed, with all else as usual. plan, store: others than the shipped
    planner and the faithful store are for planted bugs. scenario: another than the seed's own.
    Raises: SimulationFailure at the first event after which an invariant does not hold.
    """
    settings = Settings(settings) if isinstance(settings, int) else settings
    scenario = scenario or Scenario.of(settings)
    cluster = Cluster(settings.seed, scenario, plan, store or Store())
    try:
        cluster.start()
        Watch(cluster, checkers(cluster)).follow(settings.faults_s)
    except Violation as violation:
        raise SimulationFailure(settings, violation, cluster.clock.trace()) from None
    return _report(settings.seed, cluster)


class Watch:
    """Steps a cluster and shows each checker what came of it. Raises: Violation."""

    def __init__(self, cluster: Cluster, watching: list[Checker]) -> None:
        self.cluster = cluster
        self._seeing: dict[type, list[Callable[[Fact], None]]] = {
            kind: [checker.see for checker in watching if kind in checker.sees]
            for kind in get_args(Fact)
        }
        self._looking = [c.look for c in watching if type(c).look is not Checker.look]

    def step(self) -> bool:
        """One event. Returns whether it changed any row of a task."""
        store = self.cluster.store
        self.cluster.clock.step()
        if store.facts:
            facts, store.facts = store.facts, []
            for fact in facts:
                for see in self._seeing[type(fact)]:
                    see(fact)
        if not store.touched:
            return False
        touched, store.touched = store.touched, set()
        for look in self._looking:
            look(touched)
        return True

    def follow(self, faults_s: float) -> None:
        """Every event to the end: all healed, all tasks over."""
        clock, tasks = self.cluster.clock, self.cluster.store.tasks
        is_over = False
        while not is_over:
            is_changed = self.step()
            if is_changed and self.cluster.is_healed:
                is_over = all(task.is_over for task in tasks.values())
            if not self.cluster.is_healed and clock.elapsed_s > faults_s:
                self.cluster.heal()
                is_over = all(task.is_over for task in tasks.values())
            if clock.elapsed_s > faults_s + LIVENESS_S:
                raise Violation(LIVENESS, f"not over: {_unfinished(self.cluster.store)}")


def _unfinished(store: Store) -> str:
    return "; ".join(
        f"{task.id} {task.state}, {task.reason or task.phase}"
        for task in store.tasks.values()
        if not task.is_over
    )


def _report(seed: int, cluster: Cluster) -> Report:
    store = cluster.store
    return Report(
        seed=seed,
        num_events=cluster.clock.num_events,
        elapsed_s=cluster.clock.elapsed_s,
        outcomes=dict(Counter(task.state for task in store.tasks.values())),
        num_versions=sum(len(task.versions) for task in store.tasks.values()),
        num_late=store.num_late,
        num_refused=store.num_refused,
    )
