"""The simulated cluster as the planner sees it, as jobs/services/planning.py reads the real one.

Views of tasks are kept in the store until something about the task changes.
"""

from __future__ import annotations

from collections.abc import Iterable

from engine.manager.snapshot import (
    GroupView,
    Snapshot,
    StepView,
    TaskView,
    TenantView,
    WorkerView,
)

from .broker import Broker
from .rows import GroupRow, StepRow, TaskRow
from .store import Store


def take_snapshot(
    now: float, store: Store, broker: Broker, workers: Iterable[WorkerView]
) -> Snapshot:
    active = [task for task in store.tasks.values() if not task.is_over]
    tenants = {task.tenant for task in active}
    return Snapshot(
        now=now,
        tenants=tuple(TenantView(**vars(store.tenants[tenant])) for tenant in sorted(tenants)),
        tasks=tuple(_kept_view(task, store, broker) for task in active),
        workers=tuple(workers),
        queues=broker.lengths(),
        concurrency=tuple(store.concurrency.values()),
    )


def _kept_view(task: TaskRow, store: Store, broker: Broker) -> TaskView:
    view = store.views.get(task.id)
    if view is None:
        view = store.views[task.id] = _task_view(task, broker)
    return view


def _task_view(task: TaskRow, broker: Broker) -> TaskView:
    return TaskView(
        id=task.id,
        tenant=task.tenant,
        base_model=task.base_model,
        state=task.state,
        submitted_at=task.submitted_at,
        max_steps=task.max_steps,
        batch_size=task.batch_size,
        group_size=task.group_size,
        group_cost=task.group_cost,
        version=max((number for number, _ in task.versions), default=-1),
        prepare_sent_at=task.prepare_sent_at,
        prepare_error=task.prepare_error,
        steps=tuple(_step_view(step, broker) for step in task.live_steps),
        max_staleness=task.max_staleness,
        priority=task.priority,
        virtual_time=task.virtual_time,
        last_start=task.last_start,
        group_s=task.group_s,
        pass_s=task.pass_s,
        rollout_s=task.rollout_s,
        phase=task.phase,
        reason=task.reason,
        queue_position=task.queue_position,
    )


def _step_view(step: StepRow, broker: Broker) -> StepView:
    groups = step.groups if step.state == "open" else []
    return StepView(
        number=step.number,
        state=step.state,
        groups=tuple(_group_view(group, broker) for group in groups if group.state != "finished"),
        num_finished=sum(group.state == "finished" for group in groups),
        version=step.version,
        ready_order=step.ready_order,
        fence=step.fence,
        errors=step.errors,
        last_error=step.last_error,
        opened_at=step.opened_at,
        dispatched_at=step.dispatched_at,
        holder=step.holder,
    )


def _group_view(group: GroupRow, broker: Broker) -> GroupView:
    is_flying = group.state == "dispatched"
    return GroupView(
        id=group.id,
        index=group.index,
        state=group.state,
        attempt=group.attempt,
        errors=group.errors,
        last_error=group.last_error,
        dispatched_at=group.dispatched_at,
        whereabouts=broker.whereabouts(group.id, group.attempt) if is_flying else (),
    )
