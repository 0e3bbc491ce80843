"""The least time that any schedule could take for a workload on a cluster. Arithmetic only.

Three bounds, each on the makespan; the largest is the one to compare with.

*Training.* The passes, shared evenly by the trainers, after the soonest that any first step can be
ready. Of passes over several steps, the cheapest grouping: sorted by length and cut into runs (any
other grouping has larger longest ones).

*Rollout.* An engine advances all its sequences by one token a decode step, and a step of n takes
`step_s + sequence_s * n`. So whatever is batched with what, an engine that does S steps and makes W
tokens is busy for `step_s * S + sequence_s * W`. W is given. S is at least the longest chain of
tokens that must come one after the other: of a task, its steps' longest trajectories, for a step
begins when the one before it has been trained (an older one, with `max_staleness`). S is also at
least W by the slots. With several engines, both add up over them, so the mean engine bounds it.
After the last token comes a pass, the shortest one at least.

*Chain.* Of one task on an empty cluster: of each step, its longest trajectory with its tools, or
all its tokens in the fewest decode steps, whichever takes longer; then its pass. With
`max_staleness` k, step n waits for version n - k only, but passes of a task still come one after
the other.

All of it counts what must be done, not what a planner can know: no online schedule need reach it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from .cost_models import CostModel
from .workload import Episode, TaskSpec


@dataclass(frozen=True)
class Bounds:
    """Seconds."""

    training_s: float
    rollout_s: float
    rollout_at_best_s: float  # the weaker bound: all tokens at the rate of endless batches
    chain_s: float

    @property
    def makespan_s(self) -> float:
        return max(self.training_s, self.rollout_s, self.chain_s)

    @property
    def bottleneck(self) -> str:
        """Which of them binds."""
        found = {"training": self.training_s, "rollout": self.rollout_s, "chain": self.chain_s}
        return max(found, key=lambda name: found[name])


@dataclass(frozen=True)
class _TaskWork:
    """What a task's steps ask for, one entry a step."""

    tokens: list[int]
    longest: list[int]  # tokens of the longest trajectory
    alone_s: list[float]  # rollout on an empty cluster, at best
    pass_s: float
    max_staleness: int


def bounds(specs: Sequence[TaskSpec], model: CostModel, steps_per_pass: int = 1) -> Bounds:
    """For tasks that are all submitted at the start."""
    work = [_work_of(spec, model) for spec in specs]
    cost, engines = model.engine, model.num_engines
    tokens = sum(sum(task.tokens) for task in work)
    decode_steps = max(
        max(_chain(task.longest, 0.0, task.max_staleness) for task in work), tokens / cost.slots
    )
    passes = [task.pass_s for task in work for _ in task.tokens]
    first_ready_s = min(task.alone_s[0] for task in work)
    return Bounds(
        training_s=first_ready_s + _passes_s(passes, model, steps_per_pass) / model.num_trainers,
        rollout_s=(cost.step_s * decode_steps + cost.sequence_s * tokens) / engines + min(passes),
        rollout_at_best_s=cost.sequence_s * tokens / engines,
        chain_s=max(_chain(task.alone_s, task.pass_s, task.max_staleness) for task in work),
    )


def _work_of(spec: TaskSpec, model: CostModel) -> _TaskWork:
    steps = [spec.step(number) for number in range(spec.num_steps)]
    return _TaskWork(
        tokens=[_tokens(step) for step in steps],
        longest=[max(episode.num_tokens for episode in step) for step in steps],
        alone_s=[_alone_s(step, model) for step in steps],
        pass_s=model.pass_s[spec.kind.name],
        max_staleness=spec.max_staleness,
    )


def _tokens(step: Iterable[Episode]) -> int:
    return sum(episode.num_tokens for episode in step)


def _alone_s(step: Sequence[Episode], model: CostModel) -> float:
    cost = model.engine
    by_itself_s = max(e.num_tokens * cost.decode_s(1) + e.away_s for e in step)
    longest = max(episode.num_tokens for episode in step)
    together_s = cost.step_s * longest + cost.sequence_s * _tokens(step)
    return max(by_itself_s, together_s / model.num_engines)


def _chain(rollouts: Sequence[float], pass_s: float, max_staleness: int) -> float:
    """When the last version is committed. rollouts: how long each step's takes at least."""
    committed = [0.0]  # version n at index n
    for number, rollout in enumerate(rollouts):
        ready = committed[max(0, number - max_staleness)] + rollout
        committed.append(max(ready, committed[-1]) + pass_s)
    return committed[-1]


def _passes_s(passes: Iterable[float], model: CostModel, steps_per_pass: int) -> float:
    ordered = sorted(passes, reverse=True)
    runs = range(0, len(ordered), steps_per_pass)
    return sum(model.together_s(ordered[at : at + steps_per_pass]) for at in runs)
