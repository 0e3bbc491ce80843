"""A run in few numbers: what tables, rows and charts are made of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from statistics import mean

from .metrics import percentile, slowdowns, step_latencies_s
from .run import Run


@dataclass(frozen=True)
class Summary:
    """Defined in metrics.py and bounds.py; shares are of 1."""

    makespan_s: float
    steps_per_hour: float
    busy: float
    occupancy: float
    idle: float
    rollout_busy: float
    training_busy: float
    first_step_p50_s: float
    first_step_p95_s: float
    step_p50_s: float
    step_p95_s: float
    slowdown: float | None  # mean over the tasks; None: nothing is known of them alone
    training_bound_s: float
    rollout_bound_s: float
    chain_bound_s: float
    bound_s: float
    bottleneck: str
    first_fill_s: float
    last_drain_s: float
    preemptions: int
    num_plans: int

    @property
    def over_bound(self) -> float:
        """Makespan by the least that any schedule could take."""
        return self.makespan_s / self.bound_s


def summarise(run: Run, alone_s: Mapping[str, float] | None = None) -> Summary:
    """alone_s: by task, how long it takes with the cluster to itself."""
    used, first, steps = run.utilisation, run.first_steps_s, step_latencies_s(run.steps)
    return Summary(
        makespan_s=run.makespan_s,
        steps_per_hour=run.steps_per_hour,
        busy=used.busy,
        occupancy=used.occupancy,
        idle=used.idle,
        rollout_busy=used.rollout_busy,
        training_busy=used.training_busy,
        first_step_p50_s=percentile(first, 0.5),
        first_step_p95_s=percentile(first, 0.95),
        step_p50_s=percentile(steps, 0.5),
        step_p95_s=percentile(steps, 0.95),
        slowdown=mean(slowdowns(run.tasks, alone_s)) if alone_s else None,
        training_bound_s=run.bounds.training_s,
        rollout_bound_s=run.bounds.rollout_s,
        chain_bound_s=run.bounds.chain_s,
        bound_s=run.bounds.makespan_s,
        bottleneck=run.bounds.bottleneck,
        first_fill_s=run.first_fill_s,
        last_drain_s=run.last_drain_s,
        preemptions=run.preemptions,
        num_plans=run.num_plans,
    )


def alone_s(sequential: Run) -> dict[str, float]:
    """By task, from its first group to its end, read off a run in which tasks do not meet."""
    begun: dict[str, float] = {}
    for step in sequential.steps:
        begun[step.task] = min(step.begun_at, begun.get(step.task, step.begun_at))
    return {task.task: task.ended_at - begun[task.task] for task in sequential.tasks}
