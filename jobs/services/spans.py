"""Spans: when a worker worked on a stage of a task.

A group's trajectories pass through rollout and environment one by one; its spans are the times in
which at least one of them was there. Gaps shorter than MERGED_GAP_S are closed, so that a group
leaves a few rows and not one for each trajectory.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

from engine.types import Trajectory
from jobs.models import Group, Span, Task
from jobs.services import events

MERGED_GAP_S = 0.1

Piece = tuple[float, float, int]
"""(start, end, tokens); times in epoch seconds."""


def merged(pieces: Iterable[Piece]) -> list[Piece]:
    """Pieces that overlap or nearly touch become one; tokens add up."""
    found: list[Piece] = []
    for start, end, tokens in sorted(pieces):
        if found and start - found[-1][1] <= MERGED_GAP_S:
            first, last, sum_tokens = found[-1]
            found[-1] = (first, max(last, end), sum_tokens + tokens)
        else:
            found.append((start, end, tokens))
    return found


def save_group_spans(
    group: Group, trajectories: list[Trajectory], worker: str
) -> list[events.Event]:
    """Save the spans of a finished group; returns their events. worker: who graded it."""
    turns = [turn for trajectory in trajectories for turn in trajectory.turns]
    rollout = merged((turn.started_at, turn.finished_at, turn.end - turn.start) for turn in turns)
    grading = merged((t.graded_started_at, t.graded_at, 0) for t in trajectories)
    found: list[events.Event] = []
    for stage, name, pieces in (
        (Span.Stage.ROLLOUT, turns[0].worker, rollout),
        (Span.Stage.ENVIRONMENT, worker, grading),
    ):
        for start, end, tokens in pieces:
            span = Span.objects.create(
                task=group.step.task,
                stage=stage,
                worker=name,
                step=group.step.number,
                group=group.index,
                started_at=datetime.fromtimestamp(start, UTC),
                ended_at=datetime.fromtimestamp(end, UTC),
                tokens=tokens,
            )
            found += span_events(span, group.step.task)
    return found


def span_events(span: Span, task: Task) -> list[events.Event]:
    """A span on its task's stream and on the cluster's."""
    data: dict[str, Any] = {
        "id": span.pk,
        "stage": span.stage,
        "worker": span.worker,
        "step": span.step,
        "group": span.group,
        "started_at": span.started_at.isoformat(),
        "ended_at": span.ended_at.isoformat() if span.ended_at else None,
        "tokens": span.tokens,
    }
    return [
        events.Event(task.stream, "span", data),
        events.Event(
            events.CLUSTER, "span", {**data, "task": str(task.pk), "tenant": task.tenant_id}
        ),
    ]
