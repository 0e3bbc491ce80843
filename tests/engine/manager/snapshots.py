"""Small snapshots to plan on: one tenant, one base model and one worker of each kind by default."""

from __future__ import annotations

from typing import Any

from engine.manager.snapshot import (
    GroupView,
    Snapshot,
    StepView,
    TaskView,
    TenantView,
    Whereabouts,
    WorkerView,
)

NOW = 10_000.0


def tenant(id: str = "acme", **fields: Any) -> TenantView:
    return TenantView(id=id, **fields)


def task(id: str = "t1", **fields: Any) -> TaskView:
    """A running task at version 0 with no step, a second a token. step: its only one."""
    defaults: dict[str, Any] = {
        "tenant": "acme",
        "base_model": "smollm2",
        "state": "running",
        "submitted_at": 1.0,
        "max_steps": 40,
        "batch_size": 2,
        "group_size": 4,
        "group_cost": 100,
        "version": 0,
    }
    if "step" in fields:
        fields["steps"] = (fields.pop("step"),)
    merged = {**defaults, **fields}
    return TaskView(id=id, **{"group_s": float(merged["group_cost"]), **merged})


def open_step(*groups: GroupView, number: int = 0, num_finished: int = 0) -> StepView:
    return StepView(
        number=number, state="open", groups=groups, num_finished=num_finished, opened_at=NOW - 1
    )


def ready_step(order: int, **fields: Any) -> StepView:
    return StepView(**{"number": 0, "state": "ready", "ready_order": order, **fields})


def training_step(**fields: Any) -> StepView:
    """Sent a second ago under fence 1, still in its queue."""
    defaults = {"number": 0, "ready_order": 1, "fence": 1, "dispatched_at": NOW - 1}
    return StepView(**{**defaults, "state": "training", **fields})


def waiting(id: str, index: int = 0, **fields: Any) -> GroupView:
    return GroupView(id=id, index=index, state="waiting", **fields)


def dispatched(id: str, index: int = 0, **fields: Any) -> GroupView:
    """Attempt 1, a second ago, all four trajectories at the rollout worker."""
    defaults: dict[str, Any] = {
        "attempt": 1,
        "dispatched_at": NOW - 1,
        "whereabouts": (Whereabouts("worker:r#1", NOW - 1, 4),),
    }
    return GroupView(id=id, index=index, state="dispatched", **{**defaults, **fields})


def worker(incarnation: str, kind: str, **fields: Any) -> WorkerView:
    """Beat half a second ago. The name is what stands before the # of the incarnation."""
    defaults: dict[str, Any] = {
        "name": incarnation.partition("#")[0],
        "base_models": ("smollm2",),
        "started_at": 100.0,
        "last_beat_at": NOW - 0.5,
    }
    return WorkerView(incarnation=incarnation, kind=kind, **{**defaults, **fields})


ROLLOUT = worker("r#1", "rollout", slots=8)
ENVIRONMENT = worker("e#1", "environment")
TRAINER = worker("t#1", "training")
ALL_WORKERS = (ROLLOUT, ENVIRONMENT, TRAINER)


def snapshot(*tasks: TaskView, **fields: Any) -> Snapshot:
    defaults: dict[str, Any] = {"tenants": (tenant(),), "workers": ALL_WORKERS}
    return Snapshot(now=NOW, tasks=tasks, **{**defaults, **fields})
