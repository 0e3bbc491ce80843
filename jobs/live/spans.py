"""Spans for the swim lanes: per lane and stage, joined where they touch, few enough to draw."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from django.conf import settings
from django.db.models import Q, QuerySet

from jobs.models import Span, Task

from .timeline import IN_USE, Viewer, lane_key, lane_label

MAX_SPANS = 4_000
MAX_READ = 20_000  # rows looked at: everybody's work is in them, and anybody may ask
MAX_LANES = 40  # of operators: more are a long way to scroll


@dataclass(frozen=True)
class LaneSpan:
    """A stretch of one stage in one lane. Times in ms since the epoch."""

    lane: str
    stage: str
    start_ms: int
    end_ms: int | None  # none: still going on
    step: int | None = None
    group: int | None = None
    tokens: int = 0


def timeline_spans(task: Task, who: Viewer, since: datetime, now: datetime) -> dict[str, Any]:
    """The task's own lane and those of everybody else, from `since` on.

    Returns {since, merged_ms, lanes: [{key, label, is_own}], rows: [[lane, stage, start, end, step,
    group, tokens]]}; lanes without a label are numbered by the page in this order.
    """
    lanes: dict[str, dict[str, Any]] = {
        str(task.id): {"key": str(task.id), "label": task.name, "is_own": True}
    }
    spans = [_own(span) for span in _last(Span.objects.filter(task=task), since)]
    for span in _last(Span.objects.exclude(task=task).select_related("task"), since):
        found = _other(span, who)
        spans.append(found)
        lanes.setdefault(found.lane, _lane(found.lane, span.task, who))
    joined, merged_ms = fit(spans, round((now - since).total_seconds() * 1000))
    return {
        "since": _ms(since),
        "merged_ms": merged_ms,
        "lanes": list(lanes.values()),
        "rows": _rows(joined),
    }


def named_spans(spans: QuerySet[Span], since: datetime, now: datetime) -> dict[str, Any]:
    """A lane for each task, with its name and its tenant's: for operators alone.

    spans: of whichever tasks are looked at. Returns {since, merged_ms, lanes, rows} as
    `timeline_spans` does, each lane with its task and its `seconds` by stage, and num_tasks, of
    which those with the newest spans have lanes. What still goes on ends now.
    """
    found = _last(spans.select_related("task__tenant"), since)
    tasks = {span.task_id: span.task for span in reversed(found)}
    chosen = dict(list(tasks.items())[:MAX_LANES])
    own = [_own(span) for span in found if span.task_id in chosen]
    ended = [replace(span, end_ms=span.end_ms or _ms(now)) for span in own]
    joined, merged_ms = fit(ended, round((now - since).total_seconds() * 1000))
    seconds = _stage_seconds(joined, _ms(since))
    ordered = sorted(chosen.values(), key=lambda task: (task.tenant.name, task.name, str(task.pk)))
    return {
        "since": _ms(since),
        "merged_ms": merged_ms,
        "lanes": [_named_lane(task, seconds[str(task.pk)]) for task in ordered],
        "rows": _rows(joined),
        "num_tasks": len(tasks),
    }


def _rows(spans: list[LaneSpan]) -> list[list[Any]]:
    return [[s.lane, s.stage, s.start_ms, s.end_ms, s.step, s.group, s.tokens] for s in spans]


def _named_lane(task: Task, seconds: dict[str, float]) -> dict[str, Any]:
    return {
        "key": str(task.pk),
        "label": f"{task.name}, {task.tenant.name}",
        "is_own": True,
        "task": task.name,
        "tenant": task.tenant.name,
        "seconds": seconds,
    }


def _stage_seconds(spans: list[LaneSpan], since_ms: int) -> dict[str, dict[str, float]]:
    """By lane and stage, the seconds since then in which the stage was at work, however often at
    once. spans: ended ones."""
    found: dict[str, dict[str, float]] = defaultdict(lambda: dict.fromkeys(Span.Stage.values, 0.0))
    for span in join([replace(s, step=None) for s in spans], 0):
        assert span.end_ms is not None
        found[span.lane][span.stage] += (span.end_ms - max(since_ms, span.start_ms)) / 1000
    return found


def _last(spans: Any, since: datetime) -> list[Span]:
    """The spans since then, in order of their start; of too many the newest."""
    is_recent = Q(ended_at__isnull=True, started_at__gte=since) | Q(ended_at__gte=since)
    return list(spans.filter(is_recent).order_by("-started_at")[:MAX_READ])[::-1]


def _own(span: Span) -> LaneSpan:
    start, end = _ms(span.started_at), span.ended_at and _ms(span.ended_at)
    return LaneSpan(str(span.task_id), span.stage, start, end, span.step, span.group, span.tokens)


def _other(span: Span, who: Viewer) -> LaneSpan:
    """Somebody else's span; of another tenant only what the privacy setting leaves."""
    if span.task.tenant_id in who.tenant_ids:
        return _own(span)
    stage = IN_USE if settings.TIMELINE_PRIVACY == "own-only" else span.stage
    lane = lane_key(who, span.task.tenant_id)
    return LaneSpan(lane, stage, _ms(span.started_at), span.ended_at and _ms(span.ended_at))


def _lane(key: str, task: Task, who: Viewer) -> dict[str, Any]:
    is_own = task.tenant_id in who.tenant_ids
    return {
        "key": key,
        "label": task.name if is_own else lane_label(task.tenant_id),
        "is_own": is_own,
    }


def fit(spans: list[LaneSpan], window_ms: int) -> tuple[list[LaneSpan], int]:
    """At most MAX_SPANS spans, and the gap in ms up to which neighbours were joined to get there.

    Touching and overlapping spans of one lane, stage and step always become one; where that does
    not suffice, spans of different steps and ever longer gaps are joined too.
    """
    joined = join(spans, 0)
    gap_ms = max(1, window_ms // 4_000)
    merged_ms = 0
    while len(joined) > MAX_SPANS and gap_ms <= window_ms:
        merged_ms = gap_ms
        joined = join([replace(s, step=None) for s in joined], gap_ms)
        gap_ms *= 2
    return joined, merged_ms


def join(spans: Iterable[LaneSpan], gap_ms: int) -> list[LaneSpan]:
    """Join spans of one lane, stage and step that are at most `gap_ms` apart; open ones stay."""
    done: list[LaneSpan] = []
    last: dict[tuple[str, str, int | None], LaneSpan] = {}
    for span in sorted(spans, key=lambda s: s.start_ms):
        if span.end_ms is None:
            done.append(span)
            continue
        key = (span.lane, span.stage, span.step)
        before = last.get(key)
        if before is not None and span.start_ms <= (before.end_ms or 0) + gap_ms:
            end_ms = max(before.end_ms or 0, span.end_ms)
            last[key] = replace(
                before, end_ms=end_ms, group=None, tokens=before.tokens + span.tokens
            )
        else:
            if before is not None:
                done.append(before)
            last[key] = span
    return sorted([*done, *last.values()], key=lambda s: s.start_ms)


def _ms(at: datetime) -> int:
    return round(at.timestamp() * 1000)
