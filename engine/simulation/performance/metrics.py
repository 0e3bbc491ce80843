"""Every figure of the schedule benchmarks, defined once for simulated, emulated and real ones.

They read two kinds of facts. A *span* says that a worker was at work from start to end, and how
many tokens it generated; spans of one worker may overlap (several groups in one engine). A *step
time* says when a step was opened, begun (first group sent), ready, in training, and committed.
Seconds of any clock that is the same for all. Knows nothing of how the facts were found.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import ceil


@dataclass(frozen=True)
class Span:
    task: str  # "" where a worker worked for several at once
    stage: str  # "rollout" | "environment" | "training"
    worker: str
    start: float
    end: float
    tokens: float = 0.0  # generated


@dataclass(frozen=True)
class StepTime:
    task: str
    number: int
    opened_at: float
    begun_at: float  # its first group was sent
    ready_at: float
    trained_at: float  # its pass began
    committed_at: float
    tokens: int = 0  # generated
    version: int = -1  # that generated it


@dataclass(frozen=True)
class TaskTime:
    task: str
    tenant: str
    kind: str
    submitted_at: float
    ended_at: float


Window = tuple[float, float]


def steps_per_hour(steps: Iterable[StepTime], window: Window) -> float:
    """Steps committed within the window, an hour."""
    start, end = window
    return 3600 * sum(start < step.committed_at <= end for step in steps) / (end - start)


def end_to_end_s(tasks: Sequence[TaskTime]) -> float:
    """From the first task's submission to the last one's end."""
    return max(task.ended_at for task in tasks) - min(task.submitted_at for task in tasks)


def busy_s(spans: Iterable[Span], window: Window) -> float:
    """Worker-seconds within the window in which a worker had at least one span."""
    by_worker: dict[str, list[Window]] = defaultdict(list)
    for span in spans:
        by_worker[span.worker].append((max(span.start, window[0]), min(span.end, window[1])))
    return sum(end - start for found in by_worker.values() for start, end in union(found))


def union(intervals: Iterable[Window]) -> list[Window]:
    """In order, those that touch or overlap as one; empty and reversed ones are left out."""
    found: list[Window] = []
    for start, end in sorted(one for one in intervals if one[0] < one[1]):
        if found and start <= found[-1][1]:
            found[-1] = (found[-1][0], max(end, found[-1][1]))
        else:
            found.append((start, end))
    return found


def pool_busy(spans: Iterable[Span], stage: str, num_workers: int, window: Window) -> float:
    """Share of the pool's worker-seconds that were busy, 0 to 1."""
    own = [span for span in spans if span.stage == stage]
    return busy_s(own, window) / (num_workers * (window[1] - window[0]))


def rollout_occupancy(
    spans: Iterable[Span], num_workers: int, best_tokens_per_s: float, window: Window
) -> float:
    """Tokens generated, over those at the best rate of all workers all the time, 0 to 1.

    Spans count as far as they lie in the window, as if their tokens came evenly. A trainer's
    occupancy is its busy share: a pass fills it.
    """
    tokens = sum(
        span.tokens
        * max(0.0, min(span.end, window[1]) - max(span.start, window[0]))
        / max(1e-12, span.end - span.start)
        for span in spans
        if span.stage == "rollout"
    )
    return tokens / (num_workers * best_tokens_per_s * (window[1] - window[0]))


@dataclass(frozen=True)
class Utilisation:
    """Shares of 1. The pools of rollout and training devices are equally large, and count alike."""

    rollout_busy: float
    training_busy: float
    rollout_occupancy: float

    @property
    def busy(self) -> float:
        """Device-seconds in which the device was at work, over those available."""
        return (self.rollout_busy + self.training_busy) / 2

    @property
    def occupancy(self) -> float:
        """The same, but an engine's time weighted by how full its batch was."""
        return (self.rollout_occupancy + self.training_busy) / 2

    @property
    def idle(self) -> float:
        return 1 - self.busy


def utilisation(
    spans: Sequence[Span],
    num_engines: int,
    num_trainers: int,
    best_tokens_per_s: float,
    window: Window,
) -> Utilisation:
    """best_tokens_per_s: of one engine."""
    return Utilisation(
        pool_busy(spans, "rollout", num_engines, window),
        pool_busy(spans, "training", num_trainers, window),
        rollout_occupancy(spans, num_engines, best_tokens_per_s, window),
    )


def first_step_s(steps: Iterable[StepTime], tasks: Iterable[TaskTime]) -> dict[str, float]:
    """By task, from its submission to its first commit."""
    submitted = {task.task: task.submitted_at for task in tasks}
    return {s.task: s.committed_at - submitted[s.task] for s in steps if s.number == 0}


def step_latencies_s(steps: Iterable[StepTime]) -> list[float]:
    """Of every step, from its task's commit before (its opening, of the first) to its own."""
    by_task: dict[str, list[StepTime]] = defaultdict(list)
    for step in steps:
        by_task[step.task].append(step)
    latencies = []
    for own in by_task.values():
        own.sort(key=lambda step: step.number)
        before = own[0].opened_at
        for step in own:
            latencies.append(step.committed_at - before)
            before = step.committed_at
    return latencies


def slowdowns(tasks: Iterable[TaskTime], alone_s: Mapping[str, float]) -> list[float]:
    """Of every task: its time from submission to end over that of the same task alone."""
    return [(task.ended_at - task.submitted_at) / alone_s[task.task] for task in tasks]


def jain(shares: Sequence[float]) -> float:
    """Jain's index of what each got (divided by its weight): 1 all alike, 1/n one has all.

    Source: Jain, Chiu and Hawe, DEC-TR-301, 1984.
    """
    squares = sum(share * share for share in shares)
    return sum(shares) ** 2 / (len(shares) * squares) if squares else 1.0


def percentile(values: Sequence[float], share: float) -> float:
    """The least value that `share` (0 to 1) of the values do not exceed."""
    ordered = sorted(values)
    return ordered[max(0, ceil(share * len(ordered)) - 1)]
