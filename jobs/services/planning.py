"""Runs the pure planner on what is, and persists what it decides.

`plan_once` takes the planner's lock and those of all tasks, reads a whole snapshot, and applies
each command by a conditional update; stage calls leave on commit. A planner that dies in between
loses at most stage calls, which the leases notice. Redis is never asked while locks are held: a
queue server that hangs must not hold up pages and heartbeats.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from typing import Any

from django.conf import settings
from django.db import InterfaceError, OperationalError, transaction
from django.utils import timezone

from engine import collector
from engine.manager import plan
from engine.manager.policy import POLICIES
from engine.manager.snapshot import (
    Admit,
    Command,
    DispatchGroup,
    DispatchTraining,
    End,
    Explain,
    OpenStep,
    Prepare,
    SetConcurrency,
)
from engine.prompt_order import batch_rows
from jobs.models import BaseModel, Group, Span, Step, Task
from jobs.services import dispatch, events
from jobs.services.decisions import record_decisions
from jobs.services.explanations import told_now
from jobs.services.failures import told
from jobs.services.flights import Flights, Lookout
from jobs.services.lifecycle import announce, end_task, log_event, move_task
from jobs.services.sendings import send_groups
from jobs.services.snapshots import take_snapshot

MAX_COMMANDS = 100  # of one plan: it holds the database's one writer; the next goes on
log = logging.getLogger(__name__)
_lookout = Lookout()


def plan_once() -> int:
    """One look and its consequences; returns the number of commands."""
    try:
        return _plan_on(_lookout.look())
    except _TooOld:
        return _plan_on(_lookout.look(anew=True))


class _TooOld(Exception):
    """Work that seems lost in an old look may just have been handed on in good order."""


def _plan_on(flights: Flights) -> int:
    """The number of commands. Raises: _TooOld if the look is not good enough to act upon."""
    with transaction.atomic():
        events.lock_head("planner")
        policy = POLICIES[settings.SCHEDULE_POLICY]
        snapshot = take_snapshot(flights)
        with collector.held_off():  # all writers wait for this one
            decided = plan(snapshot, policy)
        commands = told_now(decided, MAX_COMMANDS)
        if flights.is_old and any(getattr(command, "cause", "") for command in commands):
            raise _TooOld
        groups = [command for command in commands if isinstance(command, DispatchGroup)]
        for command in commands:
            if not isinstance(command, DispatchGroup):
                _apply(command)
        send_groups(groups, fail=_end_by)
    record_decisions(snapshot, commands)
    return len(commands)


def _apply(command: Command) -> None:
    """Carry a command out; one that cannot be ends its task, or it would end every plan."""
    try:
        with transaction.atomic():
            APPLY[type(command)](command)
    except (OperationalError, InterfaceError):
        raise
    except Exception as error:
        _end_by(command, error)


def _end_by(command: Command, error: Exception) -> None:
    log.exception("%s could not be carried out", command)
    if isinstance(command, SetConcurrency):
        return  # of no task, and the next plan finds it out again
    end_task(command.task, Task.State.FAILED, told(error), from_states=Task.ACTIVE)


def _admit(command: Admit) -> None:
    move_task(command.task, Task.State.RUNNING, from_states=["queued"], started_at=timezone.now())


def _prepare(command: Prepare) -> None:
    Task.objects.filter(pk=command.task).update(prepare_sent_at=timezone.now())
    _send_on_commit("chores.prepare", "chores", {"task": command.task})


def _send_on_commit(name: str, queue: str, message: dict[str, Any]) -> None:
    """Robust: a stage call that fails to leave must not keep the next one back."""
    transaction.on_commit(partial(dispatch.send, name, queue, message), robust=True)


def _open_step(command: OpenStep) -> None:
    task = Task.objects.get(pk=command.task)
    config = task.hyperparameters
    is_strict = command.version == command.number
    step = Step.objects.create(
        task=task, number=command.number, policy_version=None if is_strict else command.version
    )
    rows = batch_rows(config.seed, command.number, config.batch_size, task.num_prompts)
    Group.objects.bulk_create(
        Group(step=step, index=index, prompt_index=row) for index, row in enumerate(rows)
    )


def _dispatch_training(command: DispatchTraining) -> None:
    step = Step.objects.select_related("task__base_model").get(
        task__pk=command.task, number=command.step
    )
    sent = Step.objects.filter(
        pk=step.pk, fence=command.fence - 1, state__in=["ready", "training"]
    ).update(state="training", fence=command.fence, holder="", dispatched_at=timezone.now())
    if not sent:
        return
    if command.cause:
        Span.objects.filter(task=step.task, stage="training", ended_at=None).update(
            ended_at=timezone.now()
        )
        text = f"Step {command.step + 1} is trained again: {command.cause}"
        events.record([log_event(step.task, "warning", text)])
    message = {"step": step.pk, "fence": command.fence}
    _send_on_commit("training.train", f"training.{step.task.base_model.slug}", message)


def _end(command: End) -> None:
    end_task(command.task, command.state, command.reason, from_states=["running", "queued"])


def _explain(command: Explain) -> None:
    task = Task.objects.select_related("tenant").get(pk=command.task)
    if task.is_over:
        return
    if task.phase != command.phase:
        task.phase, task.phase_since = command.phase, timezone.now()
    task.reason, task.queue_position = command.reason[:500], command.queue_position
    Task.objects.filter(pk=task.pk, state=task.state).update(
        phase=task.phase,
        phase_since=task.phase_since,
        reason=task.reason,
        queue_position=task.queue_position,
    )
    announce(task)


def _set_concurrency(command: SetConcurrency) -> None:
    found = asdict(command.concurrency)
    BaseModel.objects.filter(slug=found["base_model"]).update(concurrency=found)


APPLY: dict[type, Callable[[Any], None]] = {
    SetConcurrency: _set_concurrency,
    Admit: _admit,
    Prepare: _prepare,
    OpenStep: _open_step,
    DispatchTraining: _dispatch_training,
    End: _end,
    Explain: _explain,
}
assert {*APPLY, DispatchGroup} == set(Command.__args__)
