"""One run of a workload under a policy, and the figures of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from engine.manager.policy import Policy

from .bounds import Bounds, bounds
from .cluster import GROUP_LAG_S, Cluster
from .cost_models import CostModel
from .metrics import (
    Span,
    StepTime,
    TaskTime,
    Utilisation,
    end_to_end_s,
    first_step_s,
    steps_per_hour,
    utilisation,
)
from .timeline import START_S
from .workload import TaskSpec


@dataclass(frozen=True)
class Run:
    """What happened, from the submission of the first task to the end of the last."""

    policy: str
    steps: list[StepTime]
    tasks: list[TaskTime]
    spans: list[Span]
    utilisation: Utilisation
    bounds: Bounds
    first_fill_s: float  # before the bottleneck could begin
    last_drain_s: float  # after it had ended
    preemptions: int = 0
    num_plans: int = 0
    ledger: list[tuple[float, dict[str, float]]] = field(default_factory=list, repr=False)

    @property
    def makespan_s(self) -> float:
        return end_to_end_s(self.tasks)

    @property
    def steps_per_hour(self) -> float:
        return steps_per_hour(self.steps, (START_S, START_S + self.makespan_s))

    @property
    def first_steps_s(self) -> list[float]:
        return sorted(first_step_s(self.steps, self.tasks).values())

    @property
    def over_bound(self) -> float:
        """Makespan by the least that any schedule could take."""
        return self.makespan_s / self.bounds.makespan_s


def run(
    specs: Sequence[TaskSpec],
    model: CostModel,
    policy: Policy,
    group_lag_s: float = GROUP_LAG_S,
) -> Run:
    """Run the tasks until all are over."""
    return outcome(Cluster(specs, model, policy, group_lag_s=group_lag_s).run(), specs)


def outcome(cluster: Cluster, specs: Sequence[TaskSpec]) -> Run:
    """What happened in a cluster that has run them all."""
    model, policy = cluster.model, cluster.policy
    least = bounds(specs, model, policy.steps_per_pass)
    window = START_S, max(task.ended_at for task in cluster.task_times)
    stage = "rollout" if least.bottleneck == "rollout" else "training"
    own = [span for span in cluster.spans if span.stage == stage]
    return Run(
        policy=policy.name,
        steps=cluster.step_times,
        tasks=cluster.task_times,
        spans=cluster.spans,
        utilisation=utilisation(
            cluster.spans,
            model.num_engines,
            model.num_trainers,
            model.engine.best_tokens_per_s,
            window,
        ),
        bounds=least,
        first_fill_s=min(span.start for span in own) - window[0],
        last_drain_s=window[1] - max(span.end for span in own),
        preemptions=sum(worker.engine.preemptions for worker in cluster.rollout.workers),
        num_plans=cluster.num_plans,
        ledger=cluster.ledger,
    )
