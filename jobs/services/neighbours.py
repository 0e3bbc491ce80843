"""Who runs on the same base model: what a task's estimate takes from others.

Of other tenants only sums and means are told on.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any

from engine.manager.priority import AGING_S
from jobs.models import Task


@dataclass
class Neighbours:
    """The running and paused tasks of a base model."""

    rollouts_s: list[float] = field(default_factory=list)  # learned, where known
    passes_s: list[float] = field(default_factory=list)
    known_s: float = 0.0  # of one pass of each that may begin something, where known
    num_unknown: int = 0  # of those, passes not known
    # Of those, by tenant
    priorities: dict[Any, list[int]] = field(default_factory=lambda: defaultdict(list))

    @property
    def rollout_s(self) -> float:
        """The mean of those that are known; 0 if none is."""
        return fmean(self.rollouts_s) if self.rollouts_s else 0.0

    @property
    def pass_s(self) -> float:
        """The mean of those that are known; 0 if none is."""
        return fmean(self.passes_s) if self.passes_s else 0.0

    @property
    def round_s(self) -> float:
        """Training seconds of a step of every task that runs."""
        return self.known_s + self.num_unknown * self.pass_s

    def num_preferred(self, task: Task, held_s: float) -> int:
        """Running tasks of the task's tenant whose priority is higher, waiting counted."""
        own = task.priority + held_s // AGING_S
        return sum(priority > own for priority in self.priorities[task.tenant_id])


def read_neighbours(slugs: Iterable[str]) -> dict[str, Neighbours]:
    """By base model's slug."""
    all_of: dict[str, Neighbours] = defaultdict(Neighbours)
    rows = Task.objects.filter(base_model__slug__in=slugs, state__in=Task.OCCUPYING)
    names = ("base_model__slug", "rollout_s", "pass_s", "state", "tenant__is_suspended")
    for slug, rollout_s, pass_s, state, is_suspended, tenant, priority in rows.values_list(
        *names, "tenant_id", "priority"
    ):
        found = all_of[slug]
        found.rollouts_s += [rollout_s] if rollout_s else []
        found.passes_s += [pass_s] if pass_s else []
        if state == Task.State.RUNNING and not is_suspended:
            found.known_s += pass_s
            found.num_unknown += not pass_s
            found.priorities[tenant].append(priority)
    return all_of
