"""The paper's mix under every schedule: table, ratios to one task after the other, bars."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from statistics import mean

from benchmarks.report import Row, at_least, at_most
from engine.simulation.performance.cost_models import FIRST_MODEL, CostModel
from engine.simulation.performance.metrics import Span, StepTime, TaskTime, slowdowns
from engine.simulation.performance.run import run
from engine.simulation.performance.summary import Summary, alone_s, summarise
from engine.simulation.performance.workload import mixed_tasks

from .jobs import run_all
from .modes import BEYOND, MODES

COUNTS = (1, 2, 4, 8, 16, 32)
# Compared at every number of tasks; the others at the largest one only
EVERYWHERE = ("sequential", "synchronous", "marlaas", "shipped", BEYOND)


def half_training(model: CostModel) -> CostModel:
    return replace(model, name="training half", pass_s=_scaled(model, 0.5))


def twice_training(model: CostModel) -> CostModel:
    return replace(model, name="training twice", pass_s=_scaled(model, 2.0))


def early_saturation(model: CostModel) -> CostModel:
    """Rollout is full at half the load: a sequence more costs twice as much a decode step."""
    engine = model.engine
    slower = replace(
        engine,
        sequence_s=2 * engine.sequence_s,
        prefill_s=2 * engine.prefill_s,
        slots=engine.slots // 2,
    )
    return replace(model, name="rollout saturates at half", engine=slower)


def _scaled(model: CostModel, factor: float) -> dict[str, float]:
    return {kind: factor * seconds for kind, seconds in model.pass_s.items()}


PERTURBED = tuple(f(FIRST_MODEL) for f in (half_training, twice_training, early_saturation))


@dataclass(frozen=True)
class Case:
    """One run of a table."""

    mode: str
    num_tasks: int
    num_steps: int
    model: CostModel = FIRST_MODEL
    seed: int = 0

    def __str__(self) -> str:
        return f"{self.model.name}, {self.num_tasks} tasks, {self.mode}"


@dataclass(frozen=True)
class Result:
    summary: Summary
    alone_s: dict[str, float]  # of a sequential run, the seconds of each task
    tasks: list[TaskTime]
    steps: list[StepTime]
    spans: list[Span]


def solve(case: Case) -> Result:
    mode = MODES[case.mode]
    specs = mixed_tasks(
        case.num_tasks, case.num_steps, seed=case.seed, max_staleness=mode.max_staleness
    )
    found = run(specs, case.model, mode.policy)
    alone = alone_s(found) if case.mode == "sequential" else {}
    return Result(summarise(found), alone, found.tasks, found.steps, found.spans)


def solve_all(cases: Iterable[Case], num_processes: int) -> dict[Case, Result]:
    ordered = sorted(cases, key=lambda case: -case.num_tasks * case.num_steps)
    return run_all({case: partial(solve, case) for case in ordered}, num_processes)


HEADER = (
    f"{'mode':20} {'makespan':>10} {'change':>7} {'steps/h':>8} {'x seq.':>7} {'busy':>6} "
    f"{'idle':>6} {'occup.':>7} {'x seq.':>7} {'1st step p50, p95':>18} {'step p50, p95':>15} "
    f"{'slowdown':>8} {'least':>8} {'over':>6} {'fill':>5} {'drain':>5}"
)


def table(title: str, results: dict[str, Summary]) -> None:
    """Print what every mode came to; *change* and *x seq.* are against the sequential one."""
    base = results["sequential"]
    print(f"\n{title}")
    print(bounds_line(next(iter(results.values()))))
    print(HEADER)
    for mode, one in results.items():
        print(
            f"{mode:20} {one.makespan_s:8.0f} s "
            f"{100 * (one.makespan_s / base.makespan_s - 1):5.0f} % {one.steps_per_hour:8.1f} "
            f"{one.steps_per_hour / base.steps_per_hour:6.2f}x {one.busy:6.3f} {one.idle:6.3f} "
            f"{one.occupancy:7.3f} {one.occupancy / base.occupancy:6.2f}x "
            f"{one.first_step_p50_s:8.0f},{one.first_step_p95_s:6.0f} s "
            f"{one.step_p50_s:6.0f},{one.step_p95_s:5.0f} s "
            f"{'' if one.slowdown is None else f'{one.slowdown:.2f}x':>8} "
            f"{one.bound_s:6.0f} s {one.over_bound:6.3f} "
            f"{one.first_fill_s:3.0f} s {one.last_drain_s:3.0f} s"
        )


def bounds_line(one: Summary) -> str:
    return (
        f"least time of any strict schedule: {one.bound_s:.0f} s ({one.bottleneck}); training "
        f"{one.training_bound_s:.0f} s, rollout {one.rollout_bound_s:.0f} s, longest chain "
        f"{one.chain_bound_s:.0f} s. Least times of other modes: in their lines."
    )


def base_rows(results: dict[str, Summary], mode: str = "shipped") -> list[Row]:
    """The bars of the base constants."""
    base, ours, beyond = results["sequential"], results[mode], results[BEYOND]
    rows = [
        at_least("steps per hour, times sequential", _gain(ours, base), "times", 5.7),
        at_least(
            "occupancy-weighted utilisation, times sequential",
            ours.occupancy / base.occupancy,
            "times",
            4.3,
        ),
        Row("busy utilisation, times sequential", ours.busy / base.busy, "times"),
        at_least("end-to-end time, lower by", _less(ours, base), "%", 85),
        at_most("makespan by the least time", ours.over_bound, "times", 1.05),
        Row("first fill", ours.first_fill_s, "s"),
        Row("last drain", ours.last_drain_s, "s"),
        at_least(
            "beyond the paper, steps per hour by shipped",
            beyond.steps_per_hour / ours.steps_per_hour,
            "times",
            1.0,
        ),
        at_least(
            "first step, median, earlier than sequential",
            base.first_step_p50_s / ours.first_step_p50_s,
            "times",
            10,
        ),
        Row("first step, p95", ours.first_step_p95_s, "s"),
        Row("step latency, median, by sequential", ours.step_p50_s / base.step_p50_s, "times"),
    ]
    return rows + ablation_rows(results)


def ablation_rows(results: dict[str, Summary], prefix: str = "") -> list[Row]:
    """What the paper's schedule loses without each of its two parts."""
    whole = results["marlaas"].steps_per_hour
    return [
        at_least(
            f"{prefix}{name}: steps per hour lost",
            100 * (1 - results[name].steps_per_hour / whole),
            "%",
            0,
        )
        for name in ("without_asynchrony", "without_multi_lora")
        if name in results
    ]


def perturbed_rows(name: str, results: dict[str, Summary], mode: str = "shipped") -> list[Row]:
    base, ours = results["sequential"], results[mode]
    return [
        Row(f"{name}: steps per hour, times sequential", _gain(ours, base), "times"),
        Row(f"{name}: utilisation, times sequential", ours.occupancy / base.occupancy, "times"),
        Row(f"{name}: end-to-end time, lower by", _less(ours, base), "%"),
        at_most(f"{name}: makespan by the least time", ours.over_bound, "times", 1.05),
        *ablation_rows(results, f"{name}: "),
    ]


def model_rows(name: str, results: dict[str, Summary]) -> list[Row]:
    """As for the perturbed ones, but none of it is asked for."""
    return [replace(row, bar=None, holds=None) for row in perturbed_rows(name, results)]


def _slowdown(result: Result, alone_s: dict[str, float]) -> float | None:
    """Mean over the tasks; None where not all were run alone."""
    if any(task.task not in alone_s for task in result.tasks):
        return None
    return mean(slowdowns(result.tasks, alone_s))


def _gain(ours: Summary, base: Summary) -> float:
    return ours.steps_per_hour / base.steps_per_hour


def _less(ours: Summary, base: Summary) -> float:
    return 100 * (1 - ours.makespan_s / base.makespan_s)


def of_model(
    results: dict[Case, Result], model: CostModel, num_tasks: int, modes: Sequence[str]
) -> dict[str, Summary]:
    """Summaries by mode, in the order asked for, with the slowdown against running alone."""
    own = {case: result for case, result in results.items() if case.model == model}
    alone: dict[str, float] = {}
    for result in own.values():
        alone.update(result.alone_s)
    found = {
        case.mode: replace(result.summary, slowdown=_slowdown(result, alone))
        for case, result in own.items()
        if case.num_tasks == num_tasks
    }
    return {mode: found[mode] for mode in modes if mode in found}
