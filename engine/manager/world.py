"""A snapshot, indexed: what every rule of the planner asks for. Decides nothing."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from functools import cached_property

from .costs import Costs
from .leases import Leases, live_workers
from .policy import Policy
from .snapshot import Snapshot, TaskView, TenantView, WorkerView


@dataclass(frozen=True)
class World:
    """One snapshot with its tasks in order of submission and its living workers by incarnation."""

    snapshot: Snapshot
    tasks: tuple[TaskView, ...]
    tenants: dict[str, TenantView]
    live: dict[str, WorkerView]
    policy: Policy
    # Tasks that the policy lets begin anything; None: all
    chosen: frozenset[str] | None = None

    @classmethod
    def of(cls, snapshot: Snapshot, policy: Policy) -> World:
        tasks = tuple(sorted(snapshot.tasks, key=lambda task: (task.submitted_at, task.id)))
        chosen = None
        if policy.max_tasks:
            active = [task.id for task in tasks if task.state == "running"]
            chosen = frozenset(active[: policy.max_tasks])
        return cls(
            snapshot=snapshot,
            tasks=tasks,
            tenants={tenant.id: tenant for tenant in snapshot.tenants},
            live=live_workers(snapshot),
            policy=policy,
            chosen=chosen,
        )

    def tenant_of(self, task: TaskView) -> TenantView:
        """The task's tenant; one that the snapshot lacks may start nothing."""
        return self.tenants.get(task.tenant) or TenantView(id=task.tenant, is_suspended=True)

    def may_start(self, task: TaskView) -> bool:
        """Whether anything new may be begun for the task (what is under way always finishes)."""
        return task.id in self._startable

    @cached_property
    def _startable(self) -> frozenset[str]:
        return frozenset(
            task.id
            for task in self.tasks
            if task.state == "running"
            and (self.chosen is None or task.id in self.chosen)
            and not self.tenant_of(task).is_suspended
        )

    @cached_property
    def leases(self) -> Leases:
        return Leases(self.snapshot, self.live)

    @cached_property
    def by_base_model(self) -> dict[str, list[TaskView]]:
        """The tasks of each base model that has any, by name."""
        found: dict[str, list[TaskView]] = defaultdict(list)
        for task in self.tasks:
            found[task.base_model].append(task)
        return dict(sorted(found.items()))

    @cached_property
    def costs(self) -> Costs:
        return Costs(self.tasks)

    @property
    def is_training(self) -> bool:
        """Whether any step is with a trainer, or waits for nothing but one."""
        return any(
            step.state == "training" or (step.state == "ready" and self.may_start(task))
            for task in self.tasks
            for step in task.steps[:1]
        )

    @property
    def environment_places(self) -> list[str]:
        """Where a trajectory is while an environment worker has it."""
        return [f"worker:{w.incarnation}" for w in self.live.values() if w.kind == "environment"]

    def concurrency_limit(self, base_model: str) -> int:
        """Sequences that its engines are to get at once; 0: no limit."""
        if not self.policy.adapts:
            return 0
        known = (c.limit for c in self.snapshot.concurrency if c.base_model == base_model)
        return next(known, 0)

    def workers(self, kind: str, base_model: str) -> list[WorkerView]:
        """Living workers of a kind that serve the base model."""
        return self._workers.get((kind, base_model), [])

    @cached_property
    def _workers(self) -> dict[tuple[str, str], list[WorkerView]]:
        found: dict[tuple[str, str], list[WorkerView]] = defaultdict(list)
        for worker in self.live.values():
            for base_model in set(worker.base_models):
                found[worker.kind, base_model].append(worker)
        return found
