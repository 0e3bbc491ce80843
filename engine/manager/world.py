"""A snapshot, indexed: what every rule of the planner asks for. Decides nothing."""

from __future__ import annotations

from dataclasses import dataclass

from .leases import live_workers
from .snapshot import Snapshot, TaskView, TenantView, WorkerView


@dataclass(frozen=True)
class World:
    """One snapshot with its tasks in order of submission and its living workers by incarnation."""

    snapshot: Snapshot
    tasks: tuple[TaskView, ...]
    tenants: dict[str, TenantView]
    live: dict[str, WorkerView]

    @classmethod
    def of(cls, snapshot: Snapshot) -> World:
        return cls(
            snapshot=snapshot,
            tasks=tuple(sorted(snapshot.tasks, key=lambda task: (task.submitted_at, task.id))),
            tenants={tenant.id: tenant for tenant in snapshot.tenants},
            live=live_workers(snapshot),
        )

    def tenant_of(self, task: TaskView) -> TenantView:
        """The task's tenant; one that the snapshot lacks may start nothing."""
        return self.tenants.get(task.tenant) or TenantView(id=task.tenant, is_suspended=True)

    def may_start(self, task: TaskView) -> bool:
        """Whether anything new may be begun for the task (what is under way always finishes)."""
        return task.state == "running" and not self.tenant_of(task).is_suspended

    def workers(self, kind: str, base_model: str) -> list[WorkerView]:
        """Living workers of a kind that serve the base model."""
        return [w for w in self.live.values() if w.kind == kind and base_model in w.base_models]
