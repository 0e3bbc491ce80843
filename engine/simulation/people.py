"""Simulated people: they submit, flood, pause, resume and cancel, and operators change quotas."""

from __future__ import annotations

from collections.abc import Callable

from .faults import ACTS
from .rows import TaskRow, TenantRow
from .scenario import Scenario
from .workers import Machine

NUM_TENANTS = 3
POISONS = ("dataset", "grader", "training")
MANY_AT_ONCE = 4  # tasks of a tenant with a quota, once nobody interferes any more
POISONED = 0.15  # of the tasks
STATES = ("queued", "running", "paused")


class People:
    """Three tenants with members who act at random, and an operator."""

    def __init__(self, machine: Machine, scenario: Scenario) -> None:
        self._store, self._clock, self._faults = machine.store, machine.clock, machine.faults
        self._rng = machine.faults.stream("people")
        self._scenario = scenario
        self._acts: dict[str, Callable[[], None]] = {
            "submit": self._submit_one,
            "flood": self._flood,
            "pause": self._pause,
            "resume": self._resume,
            "cancel": self._cancel,
            "quota": self._operate,
        }

    def found(self) -> None:
        """Tenants with quotas of their own, and a first few tasks."""
        for number in range(NUM_TENANTS):
            tenant = TenantRow(f"tenant{number}", weight=self._rng.choice([0.5, 1.0, 2.0]))
            if not self._scenario.is_fair:
                tenant.max_concurrent_tasks = self._rng.choice([0, 1, 2, 4])
            self._store.tenants[tenant.id] = tenant
        for number in range(self._scenario.first_tasks):
            tenants = list(self._store.tenants.values())
            is_fair = self._scenario.is_fair
            self._submit(tenants[number % len(tenants)] if is_fair else self._any_tenant())

    def visit(self) -> None:
        """One person does one thing."""
        usual = [getattr(self._scenario.usual_rates, act) for act in ACTS]
        act = self._rng.choices(ACTS, usual)[0]
        if getattr(self._faults.rates, act):
            self._clock.note(act)
            self._acts[act]()

    def leave(self) -> None:
        """Undo whatever keeps a task from running to its end."""
        for tenant in self._store.tenants.values():
            tenant.is_suspended, tenant.is_full, tenant.tokens_per_day = False, False, 0
            if tenant.max_concurrent_tasks:
                tenant.max_concurrent_tasks = MANY_AT_ONCE
        for task_id in self._store.tasks:
            self._store.move_task(task_id, "running", ["paused"])

    def _any_tenant(self) -> TenantRow:
        return self._rng.choice(list(self._store.tenants.values()))

    def _any_task(self) -> str:
        return self._rng.choice(list(self._store.tasks))

    def _submit(self, tenant: TenantRow, is_small: bool = False) -> None:
        if len(self._store.tasks) >= self._scenario.max_tasks:
            return
        rng, is_fair = self._rng, self._scenario.is_fair
        large = [] if is_fair or is_small else [20]  # larger than all slots together
        self._store.submit(
            TaskRow(
                id=f"task{len(self._store.tasks)}",
                tenant=tenant.id,
                base_model=rng.choice(self._scenario.base_models),
                submitted_at=self._clock.wall,
                max_steps=1 if is_small else rng.randint(*self._scenario.steps),
                batch_size=rng.randint(1, 2 if is_small else self._scenario.max_batch),
                group_size=rng.choice([2, 2, 3, 4, *large]),
                max_turns=rng.choice([1, 1, 2, 3]),
                max_staleness=rng.choice(self._scenario.staleness),
                priority=0 if is_fair else rng.choice([0, 0, 1, 2]),
                poison=rng.choice(POISONS) if rng.random() < POISONED and not is_fair else "",
            )
        )

    def _submit_one(self) -> None:
        self._submit(self._any_tenant())

    def _flood(self) -> None:
        tenant = self._any_tenant()
        for _ in range(self._scenario.flood):
            self._submit(tenant, is_small=self._scenario.flood > 5)

    def _pause(self) -> None:
        self._store.move_task(self._any_task(), "paused", ["running"])

    def _resume(self) -> None:
        self._store.move_task(self._any_task(), "running", ["paused"])

    def _cancel(self) -> None:
        self._store.move_task(self._any_task(), "cancelled", STATES)

    def _operate(self) -> None:
        """Change a quota or a weight, suspend or let go, or begin a new day."""
        tenant, rng = self._any_tenant(), self._rng
        tenant.weight = rng.choice([0.5, 1.0, 2.0])
        tenant.max_concurrent_tasks = rng.choice([0, 1, 2, 4])
        tenant.tokens_per_day = rng.choice([0, 0, 50, 200])
        tenant.tokens_today = rng.choice([0, tenant.tokens_today])
        tenant.is_full = rng.random() < 0.1
        tenant.is_suspended = rng.random() < 0.2
