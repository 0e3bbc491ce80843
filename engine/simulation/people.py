"""Simulated people: they submit, flood, pause, resume and cancel, and operators change quotas."""

from __future__ import annotations

from .rows import TaskRow, TenantRow
from .workers import Machine

NUM_TENANTS = 3
MAX_TASKS = 14  # of a run, so that its length is bounded
POISONS = ("dataset", "grader", "training")


class People:
    """Three tenants with members who act at random, and an operator."""

    def __init__(self, machine: Machine, base_models: tuple[str, ...]) -> None:
        self._store, self._rng, self._clock = machine.store, machine.faults.rng, machine.clock
        self._base_models = base_models

    def found(self) -> None:
        """Tenants with quotas of their own, and a first few tasks."""
        for number in range(NUM_TENANTS):
            tenant = TenantRow(f"tenant{number}", weight=self._rng.choice([0.5, 1.0, 2.0]))
            tenant.max_concurrent_tasks = self._rng.choice([0, 1, 2, 4])
            self._store.tenants[tenant.id] = tenant
        for _ in range(self._rng.randint(3, 6)):
            self._submit(self._any_tenant())

    def visit(self) -> None:
        """One person does one thing."""
        act = self._rng.choices(
            [self._submit_one, self._flood, self._pause, self._resume, self._cancel, self._operate],
            [6, 1, 3, 4, 1, 4],
        )[0]
        self._clock.note(act.__name__.strip("_"))
        act()

    def leave(self) -> None:
        """Undo whatever keeps a task from running to its end."""
        for tenant in self._store.tenants.values():
            tenant.is_suspended, tenant.tokens_per_day = False, 0
        for task_id in self._store.tasks:
            self._store.move_task(task_id, "running", ["paused"])

    def _any_tenant(self) -> TenantRow:
        return self._rng.choice(list(self._store.tenants.values()))

    def _any_task(self) -> str:
        return self._rng.choice(list(self._store.tasks))

    def _submit(self, tenant: TenantRow) -> None:
        if len(self._store.tasks) >= MAX_TASKS:
            return
        rng = self._rng
        self._store.submit(
            TaskRow(
                id=f"task{len(self._store.tasks)}",
                tenant=tenant.id,
                base_model=rng.choice(self._base_models),
                submitted_at=self._clock.now,
                max_steps=rng.randint(1, 3),
                batch_size=rng.randint(1, 4),
                group_size=rng.choice([2, 2, 3, 4, 20]),  # 20: larger than all slots together
                poison=rng.choice(POISONS) if rng.random() < 0.15 else "",
            )
        )

    def _submit_one(self) -> None:
        self._submit(self._any_tenant())

    def _flood(self) -> None:
        tenant = self._any_tenant()
        for _ in range(5):
            self._submit(tenant)

    def _pause(self) -> None:
        self._store.move_task(self._any_task(), "paused", ["running"])

    def _resume(self) -> None:
        self._store.move_task(self._any_task(), "running", ["paused"])

    def _cancel(self) -> None:
        self._store.move_task(self._any_task(), "cancelled", ["queued", "running", "paused"])

    def _operate(self) -> None:
        """Change a quota or a weight, suspend or let go, or begin a new day."""
        tenant, rng = self._any_tenant(), self._rng
        tenant.weight = rng.choice([0.5, 1.0, 2.0])
        tenant.max_concurrent_tasks = rng.choice([0, 1, 2, 4])
        tenant.tokens_per_day = rng.choice([0, 0, 50, 200])
        tenant.tokens_today = rng.choice([0, tenant.tokens_today])
        tenant.is_suspended = rng.random() < 0.2
