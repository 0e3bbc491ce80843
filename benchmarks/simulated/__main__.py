"""What the shipped planner makes of many tasks on shared hardware, in virtual time.

Bars are held to the full size only; smaller ones just report.

usage: python -m benchmarks.simulated [--quick] [--only mix counts perturbed models scale fairness
       concurrency] [--tasks 32] [--steps 20] [--modes shipped,sequential,…] [--processes 2]
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from benchmarks.figures import IMAGES
from benchmarks.report import Row, publish
from engine.simulation.performance.cost_models import FIRST_MODEL, CostModel
from engine.simulation.performance.hardware import SHAPES, cost_model
from engine.simulation.performance.summary import Summary

from . import concurrency, fairness, mix, scale
from .charts import draw
from .jobs import run_all
from .modes import BEYOND, MODES

COMPARED = ("sequential", "marlaas", "shipped", BEYOND)
ABLATIONS = ("synchronous", "without_asynchrony", "without_multi_lora")


@dataclass
class Bench:
    """What the sections share: how large, and what they found."""

    num_tasks: int
    num_steps: int
    modes: tuple[str, ...]
    num_processes: int
    is_quick: bool
    rows: list[Row] = field(default_factory=list)
    tables: dict[str, Any] = field(default_factory=dict)  # for the JSON line

    def solve(self, cases: list[mix.Case]) -> dict[mix.Case, mix.Result]:
        results = mix.solve_all(cases, self.num_processes)
        for case, result in results.items():
            self.tables[str(case)] = asdict(result.summary)
        return results


def run_mix(bench: Bench) -> None:
    """All modes at the largest number of tasks, and some at fewer."""
    cases = [mix.Case(mode, bench.num_tasks, bench.num_steps) for mode in bench.modes]
    results = bench.solve(cases)
    found = mix.of_model(results, FIRST_MODEL, bench.num_tasks, bench.modes)
    mix.table(f"the mix, {bench.num_tasks} tasks of {bench.num_steps} steps", found)
    bench.rows += mix.base_rows(found)


def run_counts(bench: Bench) -> None:
    """Fewer tasks, and the charts over their number."""
    counts = [count for count in mix.COUNTS if count <= bench.num_tasks]
    cases = [mix.Case(m, count, bench.num_steps) for count in counts for m in mix.EVERYWHERE]
    results = bench.solve(cases)
    for count in counts:
        found = mix.of_model(results, FIRST_MODEL, count, mix.EVERYWHERE)
        mix.table(f"the mix, {count} tasks of {bench.num_steps} steps", found)
    if not bench.is_quick:
        draw(results, IMAGES)


def run_perturbed(bench: Bench) -> None:
    """The base constants, changed one at a time."""
    modes = (*COMPARED, *ABLATIONS)
    _models(bench, mix.PERTURBED, modes, bench.num_steps, mix.perturbed_rows)


def run_models(bench: Bench) -> None:
    """Three sizes of base model on 64 accelerators."""
    models = [cost_model(shape) for shape in SHAPES]
    _models(bench, models, COMPARED, max(2, bench.num_steps // 2), mix.model_rows)


def _models(
    bench: Bench,
    models: Sequence[CostModel],
    modes: Sequence[str],
    num_steps: int,
    rows: Callable[[str, dict[str, Summary]], list[Row]],
) -> None:
    cases = [mix.Case(m, bench.num_tasks, num_steps, model) for model in models for m in modes]
    results = bench.solve(cases)
    for model in models:
        found = mix.of_model(results, model, bench.num_tasks, modes)
        mix.table(f"{model.name}, {bench.num_tasks} tasks of {num_steps} steps", found)
        bench.rows += rows(model.name, found)


def run_scale(bench: Bench) -> None:
    """A thousand tasks and more."""
    results = run_all(scale.jobs(2 if bench.is_quick else 3, bench.is_quick), bench.num_processes)
    scale.table(results)
    bench.rows += scale.rows(results)


def run_fairness(bench: Bench) -> None:
    """Two tenants that always have work, and one that floods."""
    results = run_all(fairness.jobs(bench.is_quick), bench.num_processes)
    bench.rows += fairness.rows(results)
    if bench.is_quick:
        print("\nquick: fairness is not measured, since it takes long windows to judge it by")
        bench.rows += fairness.unmeasured_rows()


def run_concurrency(bench: Bench) -> None:
    """The number of sequences at once, found by feedback and fixed."""
    jobs = concurrency.jobs(3, (128, 512)) if bench.is_quick else concurrency.jobs(12)
    results = run_all(jobs, bench.num_processes)
    concurrency.table(results)
    bench.rows += concurrency.rows(results)


SECTIONS: dict[str, Callable[[Bench], None]] = {
    "mix": run_mix,
    "counts": run_counts,
    "perturbed": run_perturbed,
    "models": run_models,
    "scale": run_scale,
    "fairness": run_fairness,
    "concurrency": run_concurrency,
}


def main() -> int:
    options = _options()
    num_tasks, num_steps = (8, 3) if options.quick else (options.tasks, options.steps)
    modes = tuple(options.modes.split(","))
    bench = Bench(num_tasks, num_steps, modes, options.processes, options.quick)
    for name in options.only or SECTIONS:
        SECTIONS[name](bench)
    print()
    is_full = (num_tasks, num_steps, modes) == (32, 20, tuple(MODES))
    rows = bench.rows if is_full else [replace(row, bar=None, holds=None) for row in bench.rows]
    return 0 if publish("simulated", rows, tables=bench.tables) else 1


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="everything small, for a look")
    parser.add_argument("--only", nargs="+", choices=SECTIONS)
    parser.add_argument("--tasks", type=int, default=32)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--modes", default=",".join(MODES))
    parser.add_argument("--processes", type=int, default=2)
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
