"""One run: a seed, a planner and a store in; a report, or a failure that can be replayed, out."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from engine.manager import plan as shipped_plan

from .cluster import Cluster, Plan
from .faults import Rates
from .invariants import CHECKERS, Violation
from .store import Store

FAULTS_S = 90.0  # virtual seconds with faults; then the cluster heals
LIVENESS_S = 1800.0  # virtual seconds after that, within which every task must have ended
LIVENESS = "liveness"
WHAT_HAPPENS = Rates()


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
    """A violated invariant, with the seed and the last events."""

    def __init__(self, seed: int, violation: Violation, trace: list[str]) -> None:
        self.seed, self.invariant = seed, violation.invariant
        lines = [
            f"seed {seed} violates invariant {violation}",
            *trace,
            f"replay: python -m engine.simulation --seed {seed}",
        ]
        super().__init__("\n".join(lines))


def run(
    seed: int,
    *,
    plan: Plan = shipped_plan,
    store: Store | None = None,
    rates: Rates = WHAT_HAPPENS,
) -> Report:
    """Run a cluster with faults, heal it, and wait until every task has ended.

    plan, store: others than the shipped planner and the faithful store are for planted bugs.
    Raises: SimulationFailure at the first event after which an invariant does not hold.
    """
    cluster = Cluster(seed, plan, store or Store(), rates)
    checkers = [checker(cluster) for checker in CHECKERS]
    cluster.start()
    num_seen = 0
    is_healed = False
    try:
        while not (is_healed and all(task.is_over for task in cluster.store.tasks.values())):
            cluster.clock.step()
            facts = cluster.store.facts[num_seen:]
            num_seen += len(facts)
            for checker in checkers:
                for fact in facts:
                    checker.see(fact)
                checker.look()
            if not is_healed and cluster.clock.elapsed_s > FAULTS_S:
                is_healed = True
                cluster.heal()
            if cluster.clock.elapsed_s > FAULTS_S + LIVENESS_S:
                raise Violation(LIVENESS, f"not over: {_unfinished(cluster.store)}")
    except Violation as violation:
        raise SimulationFailure(seed, violation, cluster.clock.trace()) from None
    return _report(seed, cluster)


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
