"""What befalls a whole process or machine, and when people come by."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .faults import DISASTERS
from .workers import Worker

if TYPE_CHECKING:
    from .cluster import Cluster

RESTART_S = (0.5, 16.0)  # from a kill to the next life: shorter and longer than a lease
SILENCE_S = (6.0, 16.0)  # shorter and longer than a beat may be late
JUMPS_S = (-3600.0, -30.0, -5.0, -1.0, 1.0, 5.0, 30.0, 3600.0)
SKEW_S = (1.0, 15.0)  # until the planner's clock is right again


class Disasters:
    """Comes at random times until the cluster heals."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._clock, self._faults = cluster.clock, cluster.faults
        self._rng, self._visits = (
            cluster.faults.stream("disasters"),
            cluster.faults.stream("visits"),
        )

    def schedule(self) -> None:
        self._next_disaster()
        self._next_visit()

    def _next_disaster(self) -> None:
        mean_s = self._cluster.scenario.between_disasters_s
        self._clock.after(self._rng.expovariate(1 / mean_s), self._disaster)

    def _next_visit(self) -> None:
        mean_s = self._cluster.scenario.between_visits_s
        self._clock.after(self._visits.expovariate(1 / mean_s), self._visit)

    def _visit(self) -> None:
        if self._faults.are_on:
            self._cluster.people.visit()
            self._cluster.ring()
            self._next_visit()

    def _disaster(self) -> None:
        if not self._faults.are_on:
            return
        rng = self._rng
        worker = rng.choice(list(self._cluster.workers.values()))
        usual = [getattr(self._cluster.scenario.usual_rates, kind) for kind in DISASTERS]
        kind = rng.choices(DISASTERS, usual)[0]
        restart_s, silence_s = rng.uniform(*RESTART_S), rng.uniform(*SILENCE_S)
        if getattr(self._faults.rates, kind):
            if kind == "wipe":
                self._clock.note("wipe")
                self._cluster.broker.wipe()
            elif kind == "clock":
                self._jump()
            elif worker.is_alive and kind == "kill":
                self._kill(worker, restart_s)
            elif worker.is_alive:
                self._clock.note("silence", worker, f"{silence_s:.1f} s")
                worker.fall_silent(silence_s)
        self._next_disaster()

    def _kill(self, worker: Worker, restart_s: float) -> None:
        self._clock.note("kill", worker)
        worker.die()
        self._cluster.store.process_died()
        self._clock.after(restart_s, self._cluster.start_worker, worker.role)

    def _jump(self) -> None:
        """All clocks for good, or the planner's alone for a while."""
        seconds = self._rng.choice(JUMPS_S)
        if self._rng.random() < 0.5:
            self._clock.note("clock", f"{seconds:+g} s")
            self._clock.skew_s += seconds
        else:
            self._clock.note("planner's clock", f"{seconds:+g} s")
            self._cluster.planner_skew_s = seconds
            self._clock.after(self._rng.uniform(*SKEW_S), self._correct)

    def _correct(self) -> None:
        self._clock.note("planner's clock is right again")
        self._cluster.planner_skew_s = 0.0
