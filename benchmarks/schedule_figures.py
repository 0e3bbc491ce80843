"""The figures of a run of tasks by the one definition of each, and those of two runs compared."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from benchmarks.campaign import Record
from benchmarks.report import Row
from engine.simulation.performance.metrics import (
    Span,
    StepTime,
    TaskTime,
    first_step_s,
    percentile,
    step_latencies_s,
    steps_per_hour,
    utilisation,
)

TOLERANCE = 0.1
NAMES = {
    "steps_per_hour": ("steps an hour", "steps/h"),
    "busy": ("utilisation, time busy", "of 1"),
    "occupancy": ("utilisation, weighted by occupancy", "of 1"),
    "end_to_end_s": ("end to end", "s"),
    "first_step_p50_s": ("time to first step, median", "s"),
    "first_step_p95_s": ("time to first step, p95", "s"),
    "latency_p50_s": ("step latency, median", "s"),
}


@dataclass(frozen=True)
class Figures:
    """From the start of the run to the end of its last task. Utilisation is of 1."""

    steps_per_hour: float
    busy: float
    occupancy: float
    end_to_end_s: float
    first_step_p50_s: float
    first_step_p95_s: float
    latency_p50_s: float


def figures(
    steps: Sequence[StepTime],
    tasks: Sequence[TaskTime],
    spans: Sequence[Span],
    best_tokens_per_s: float,
) -> Figures:
    """Of one engine and one trainer. best_tokens_per_s: of the engine."""
    window = min(task.submitted_at for task in tasks), max(task.ended_at for task in tasks)
    first = list(first_step_s(steps, tasks).values())
    used = utilisation(spans, 1, 1, best_tokens_per_s, window)
    return Figures(
        steps_per_hour=steps_per_hour(steps, window),
        busy=used.busy,
        occupancy=used.occupancy,
        end_to_end_s=window[1] - window[0],
        first_step_p50_s=percentile(first, 0.5),
        first_step_p95_s=percentile(first, 0.95),
        latency_p50_s=percentile(step_latencies_s(steps), 0.5),
    )


def in_model_time(record: Record, scale: float) -> Record:
    """A record whose clock went `scale` times as slowly as its model says, by the model's clock."""

    def shrunk(fact: Any) -> Any:
        moments = [f.name for f in fields(fact) if f.name.endswith("_at")]
        moments += ["start", "end"] if isinstance(fact, Span) else []
        return replace(fact, **{name: getattr(fact, name) / scale for name in moments})

    return replace(
        record,
        steps=[shrunk(step) for step in record.steps],
        tasks=[shrunk(task) for task in record.tasks],
        spans=[shrunk(span) for span in record.spans],
    )


def compared(mode: str, found: Figures, expected: Figures) -> list[Row]:
    """Each figure, what the simulation says, and whether they are within TOLERANCE."""
    rows = []
    for name, (title, unit) in NAMES.items():
        value, other = getattr(found, name), getattr(expected, name)
        ratio = value / other
        holds = abs(ratio - 1) <= TOLERANCE
        rows += [
            Row(f"{mode}: {title}", value, unit),
            Row("  simulated", other, unit),
            Row("  emulated over simulated (0.9 to 1.1)", ratio, "times", 1 + TOLERANCE, holds),
        ]
    return rows
