"""Groups that a plan sends to the rollout workers: a few questions a task, however many there are.

Hundreds may go at once, and whoever else writes waits meanwhile. The planner holds its lock and
those of all tasks, so nobody moves a group between the update and the look at what it moved.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial

from django.db import InterfaceError, OperationalError, transaction
from django.db.models import F
from django.utils import timezone

from engine.manager.snapshot import DispatchGroup
from jobs.models import Group, PolicyVersion, Step, Task, Tenant
from jobs.services import dispatch, events
from jobs.services.lifecycle import log_event


@dataclass(frozen=True)
class _Sent:
    """A group that is dispatched now."""

    command: DispatchGroup
    group: Group
    version: PolicyVersion


def send_groups(
    commands: Sequence[DispatchGroup], fail: Callable[[DispatchGroup, Exception], None]
) -> None:
    """Carry the commands out; messages leave on commit, in the order of the commands.

    fail: called with one of a task's commands, and why they cannot be carried out; none is then.
    """
    by_task: dict[str, list[DispatchGroup]] = defaultdict(list)
    for command in commands:
        by_task[command.task].append(command)
    sent: list[_Sent] = []
    for task_id, own in by_task.items():
        try:
            with transaction.atomic():
                sent += _dispatch(task_id, own)
        except (OperationalError, InterfaceError):
            raise
        except Exception as error:
            fail(own[0], error)
    order = {command.group: place for place, command in enumerate(commands)}
    sent.sort(key=lambda one: order[one.command.group])
    _charge_tenants(sent)
    for one in sent:
        transaction.on_commit(partial(dispatch.send_group, one.group, one.version), robust=True)


def _dispatch(task_id: str, commands: list[DispatchGroup]) -> list[_Sent]:
    """Those whose group was still to be sent, in order."""
    groups = _mark_dispatched(commands, timezone.now())
    sent = [command for command in commands if command.group in groups]
    if not sent:
        return []
    task = Task.objects.select_related("base_model").get(pk=task_id)
    steps = Step.objects.in_bulk({group.step_id for group in groups.values()})
    for step in steps.values():
        step.task = task
    numbers = {step.generated_by for step in steps.values()}
    versions = {v.number: v for v in PolicyVersion.objects.filter(task=task, number__in=numbers)}
    for group in groups.values():
        group.step = steps[group.step_id]
    Task.objects.filter(pk=task_id).update(
        virtual_time=sent[-1].task_virtual_time, last_start=sent[-1].task_last_start
    )
    _note_charges(sent, groups)
    _log_causes(task, sent, groups)
    return [_Sent(c, (g := groups[c.group]), versions[g.step.generated_by]) for c in sent]


def _mark_dispatched(commands: list[DispatchGroup], now: datetime) -> dict[str, Group]:
    """Move the groups that nobody has moved, and read them, by id. now: no other plan's."""
    by_attempt: dict[int, list[str]] = defaultdict(list)
    for command in commands:
        by_attempt[command.attempt].append(command.group)
    found: dict[str, Group] = {}
    for attempt, ids in by_attempt.items():
        mine = Group.objects.filter(pk__in=ids)
        moved = mine.filter(attempt=attempt - 1, state__in=["waiting", "dispatched"]).update(
            state="dispatched", attempt=attempt, dispatched_at=now
        )
        if moved:
            moved_now = mine.filter(attempt=attempt, state="dispatched", dispatched_at=now)
            found |= {str(group.pk): group for group in moved_now}
    return found


def _note_charges(sent: list[DispatchGroup], groups: dict[str, Group]) -> None:
    """Keep with each step what is charged for it, to be settled once it is ready."""
    charges: dict[int, float] = defaultdict(float)
    for command in sent:
        charges[groups[command.group].step_id] += command.settled_s
    for step, charged_s in charges.items():
        Step.objects.filter(pk=step).update(charged_s=F("charged_s") + charged_s)


def _log_causes(task: Task, sent: list[DispatchGroup], groups: dict[str, Group]) -> None:
    """Tell the task's people what is generated again, and why."""
    lines = [
        log_event(
            task,
            "warning",
            f"Step {command.step + 1}, group {groups[command.group].index + 1} is generated again:"
            f" {command.cause}",
        )
        for command in sent
        if command.cause
    ]
    if lines:
        events.record(lines)


def _charge_tenants(sent: list[_Sent]) -> None:
    latest = {one.group.step.task.tenant_id: one.command for one in sent}
    for tenant, command in latest.items():
        Tenant.objects.filter(pk=tenant).update(
            virtual_time=command.virtual_time, last_start=command.last_start
        )
