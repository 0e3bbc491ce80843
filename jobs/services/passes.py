"""Training passes: who may train a step, and how its result becomes a version.

A pass is taken under a fence, a number that grows with every dispatch. Only the pass that still
holds the newest fence commits; whatever a slower one wrote is never referred to.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from django.db import transaction
from django.db.models import F
from django.utils import timezone

from engine.types import AdapterRef, Trajectory
from jobs.models import Group, PolicyVersion, Span, Step, Task
from jobs.services import charges, costs, events, mismatch
from jobs.services.failures import told
from jobs.services.lifecycle import lock_task, log_event
from jobs.services.payloads import read_group
from jobs.services.planner_bell import ring_planner
from jobs.services.spans import span_events

NOBODY = "nobody"  # holder of a pass that was given up: no incarnation, so its lease is over


@dataclass(frozen=True)
class Pass:
    """One attempt to train a step."""

    step: Step
    fence: int
    holder: str  # worker incarnation
    span: Span


def take_pass(step_id: int, fence: int, holder: str, worker: str) -> Pass | None:
    """Take a dispatched step; None if it was dispatched anew, taken, or its task ended."""
    task_id = Step.objects.filter(pk=step_id).values_list("task", flat=True).first()
    with transaction.atomic():
        if lock_task(task_id) != Task.State.RUNNING:
            return None
        taken = Step.objects.filter(pk=step_id, fence=fence, state="training", holder="").update(
            holder=holder, training_started_at=timezone.now()
        )
        if not taken:
            return None
        step = Step.objects.select_related("task__base_model", "task__tenant").get(pk=step_id)
        span = Span.objects.create(
            task=step.task,
            stage="training",
            worker=worker,
            step=step.number,
            started_at=timezone.now(),
        )
        events.record(span_events(span, step.task))
        transaction.on_commit(ring_planner)
    return Pass(step, fence, holder, span)


def disown(holder: str, under_way: tuple[int, int] | None) -> int:
    """Give up every pass that the rows say `holder` has, but for the one it works on.

    under_way: (step id, fence). A worker whose answer to `take_pass`, or whose word of a failure,
    was lost with the database would otherwise seem to train for ever. Returns how many there were.
    """
    seeming = Step.objects.filter(state="training", holder=holder)
    if under_way:
        seeming = seeming.exclude(pk=under_way[0], fence=under_way[1])
    return seeming.update(holder=NOBODY)


def policy_of(step: Step) -> AdapterRef:
    """The version that must have generated the step's groups; nobody reads its files for that."""
    version = PolicyVersion.objects.get(task=step.task_id, number=step.generated_by)
    return AdapterRef(str(step.task_id), version.number, version.digest, path="")


def recorded_groups(step: Step) -> list[list[Trajectory]]:
    """The step's finished groups in order. Raises ArtifactError if a payload is gone."""
    return [read_group(group) for group in Group.objects.filter(step=step).select_related("step")]


def commit_version(
    taken: Pass, digest: str, key: str, num_bytes: int, metrics: dict[str, Any]
) -> bool:
    """Make the trained adapter version `step.number` + 1; False if the pass lost its fence."""
    step, task = taken.step, taken.step.task
    with transaction.atomic():
        lock_task(task.pk)
        committed = _mine(taken).update(
            state="committed", metrics=metrics, ended_at=timezone.now(), last_error=""
        )
        if not committed:
            events.record(_end_span(taken))
            return False
        version = PolicyVersion.objects.create(
            task=task,
            number=step.number + 1,
            digest=digest,
            key=key,
            num_bytes=num_bytes,
            is_kept=is_checkpoint(task, step.number + 1),
        )
        tokens = int(metrics.get("tokens", 0))
        events.record(
            [
                events.Event(task.stream, "metric", {"step": step.number, "metrics": metrics}),
                events.Event(task.stream, "version", {"number": version.number, "digest": digest}),
                *_end_span(taken, tokens),
            ]
        )
        span = taken.span
        if span.ended_at:
            pass_s = (span.ended_at - span.started_at).total_seconds()
            costs.learn_pass(task, pass_s)
            charges.settle_pass(step, pass_s)
        mismatch.judge_step(task, step.number, metrics)
        transaction.on_commit(ring_planner)
    return True


def _mine(taken: Pass) -> Any:
    return Step.objects.filter(
        pk=taken.step.pk, state="training", fence=taken.fence, holder=taken.holder
    )


def is_checkpoint(task: Task, number: int) -> bool:
    """Whether a version is kept for good: every checkpoint_interval-th, and the last."""
    interval = task.config["checkpoint_interval"]
    return number == task.config["max_steps"] or bool(interval and number % interval == 0)


def _end_span(taken: Pass, tokens: int = 0) -> list[events.Event]:
    span = taken.span
    span.ended_at, span.tokens = timezone.now(), tokens
    Span.objects.filter(pk=span.pk).update(ended_at=span.ended_at, tokens=tokens)
    return span_events(span, taken.step.task)


def fail_pass(taken: Pass, error: str) -> bool:
    """Give the step back to the head of the FIFO and count the error."""
    error = told(error)
    with transaction.atomic():
        lock_task(taken.step.task_id)
        failed = _mine(taken).update(
            state="ready", holder="", errors=F("errors") + 1, last_error=error[:500]
        )
        spans = _end_span(taken)
        if failed:
            text = f"Step {taken.step.number + 1} could not be trained: {error}"
            spans.append(log_event(taken.step.task, "error", text))
        events.record(spans)
        transaction.on_commit(ring_planner)
    return bool(failed)
