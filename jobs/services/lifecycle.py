"""How a task's state moves: one conditional update, one event on each stream that shows it.

queued → running ⇄ paused → succeeded | failed | cancelled; queued may also end at once.

Lock order, or PostgreSQL would see deadlocks: whoever changes anything of a task locks the task's
row first (`lock_task`, or an update of it), then its other rows, then heads of streams. Only the
planner locks several tasks; it takes them all, in order of their ids, before anything else.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any

from django.db import transaction
from django.utils import timezone

from jobs.models import Group, Span, Step, Task
from jobs.services import events, joins
from jobs.services.planner_bell import ring_planner


def lock_task(task_id: Any) -> str:
    """Lock a task's row until the transaction ends; returns its state, "" if it is gone."""
    found = Task.objects.select_for_update(no_key=True).filter(pk=task_id)
    return found.values_list("state", flat=True).first() or ""


def move_task(
    task_id: Any, to: str, *, from_states: Iterable[str], reason: str = "", **fields: Any
) -> bool:
    """Move a task whose state is one of `from_states`; False if it is not (someone else won)."""
    with transaction.atomic():
        moved = Task.objects.filter(pk=task_id, state__in=list(from_states)).update(
            state=to, reason=reason[:500], **{"pause_reason": "", **fields}
        )
        if moved:
            announce(Task.objects.select_related("tenant").get(pk=task_id), log=True)
            transaction.on_commit(ring_planner)
    return bool(moved)


def hold_task(task_id: Any, reason: str) -> bool:
    """Pause a running task for a cause that is no person's; False if it does not run."""
    return move_task(
        task_id,
        Task.State.PAUSED,
        from_states=[Task.State.RUNNING],
        reason=reason,
        pause_reason=reason[:500],
        mismatched_steps=0,
    )


def end_task(task_id: Any, state: str, reason: str, *, from_states: Iterable[str]) -> bool:
    """Move to a terminal state; what was under way is dropped, and the quota is free at once."""
    assert state in Task.TERMINAL
    with transaction.atomic():
        ended = move_task(
            task_id,
            state,
            from_states=from_states,
            reason=reason,
            phase=state,
            phase_since=timezone.now(),
            queue_position=0,
            ended_at=timezone.now(),
        )
        if ended:
            _drop_work(task_id)
    return ended


def _drop_work(task_id: Any) -> None:
    """End the live steps of a task; what is in flight for it is late from now on."""
    live = Step.objects.filter(task_id=task_id, state__in=Step.LIVE)
    unfinished = Group.objects.filter(step__in=live, state__in=["waiting", "dispatched"])
    for group in unfinished.filter(state="dispatched"):
        transaction.on_commit(partial(joins.give_up, str(group.pk), group.attempt))
    unfinished.update(state=Group.State.DROPPED)
    live.update(state=Step.State.DROPPED, ended_at=timezone.now())
    Span.objects.filter(task_id=task_id, ended_at=None).update(ended_at=timezone.now())


def announce(task: Task, *, log: bool = False) -> None:
    """Put the task's present state on its own stream and its tenant's."""
    state = state_data(task)
    found = [
        events.Event(task.stream, "state", state),
        events.Event(f"tenant:{task.tenant_id}", "task", {"id": str(task.id), **state}),
    ]
    if log:
        level = "warning" if task.pause_reason else "info"
        found.append(log_event(task, level, f"{task.get_state_display()}. {task.reason}".strip()))
    events.record(found)


def log_event(task: Task, level: str, text: str) -> events.Event:
    """A line of the task's log; level is info, warning or error."""
    return events.Event(
        task.stream, "log", {"level": level, "text": text, "at": timezone.now().isoformat()}
    )


def state_data(task: Task) -> dict[str, Any]:
    """What pages show of a task's state; absolute values."""
    return {
        "name": task.name,
        "state": task.state,
        "reason": task.reason,
        "pause_reason": task.pause_reason,
        "phase": task.phase,
        "phase_since": task.phase_since.isoformat() if task.phase_since else None,
        "queue_position": task.queue_position,
        "priority": task.priority,
        "started_at": task.started_at.isoformat() if task.started_at else None,
        "ended_at": task.ended_at.isoformat() if task.ended_at else None,
    }
