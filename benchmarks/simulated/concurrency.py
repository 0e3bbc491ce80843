"""Does feedback find how many sequences an engine should get at once, without being told?

Five loads, each under the shipped policy and under the same policy with a fixed number of slots
instead, over a sweep. Where KV is *untold*, heartbeats do not say how much there is, so that the
planner cannot reckon and only sees speed and preemptions. The trainer is made light, so that
rollout decides. Throughput is that of the whole run, what it takes to find out included.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

from benchmarks.report import Row, at_least
from engine.manager.policy import SHIPPED
from engine.simulation.performance.cost_models import FIRST_MODEL, CostModel
from engine.simulation.performance.run import run
from engine.simulation.performance.workload import (
    AMC,
    GSM,
    MIX,
    SEARCH,
    LogNormal,
    TaskSpec,
    mixed_tasks,
)

SWEEP = (64, 128, 256, 512, 1024, 2048)
FIXED = replace(SHIPPED, name="fixed", adapts=False)
SLOW_SEARCH = replace(SEARCH, name="search", tool=LogNormal(2.0, 0.8, 1.0, 60.0))


@dataclass(frozen=True)
class Load:
    name: str
    model: CostModel
    specs: tuple[TaskSpec, ...]


def _model(kv_tokens: int, tells_kv: bool = True) -> CostModel:
    engine = replace(
        FIRST_MODEL.engine,
        slots=max(SWEEP),
        kv_tokens=kv_tokens,
        tells_kv=tells_kv,
        sequence_s=1 / 20_000,
        prefill_s=1 / 20_000,
    )
    return replace(FIRST_MODEL, engine=engine, pass_s={kind.name: 0.2 for kind in MIX})


def loads(num_steps: int) -> tuple[Load, ...]:
    """60,000 tokens of KV hold some 400 of the short answers as they are on their way."""
    short = tuple(mixed_tasks(8, num_steps, kinds=(GSM,)))
    long = tuple(mixed_tasks(8, max(2, num_steps // 3), kinds=(AMC,)))
    slow = tuple(mixed_tasks(8, num_steps, kinds=(SLOW_SEARCH,)))
    later = tuple(replace(spec, id=f"later-{spec.id}", submitted_s=120.0) for spec in long)
    return (
        Load("short answers, any KV", _model(0), short),
        Load("short answers, little KV, untold", _model(60_000, tells_kv=False), short),
        Load("long answers, little KV", _model(200_000), long),
        Load("slow tools, little KV, untold", _model(60_000, tells_kv=False), slow),
        Load("short, then long, untold", _model(100_000, tells_kv=False), short + later),
    )


def adaptive_s(load: Load) -> float:
    return run(load.specs, load.model, SHIPPED).makespan_s


def fixed_s(load: Load, slots: int) -> float:
    model = replace(load.model, engine=replace(load.model.engine, slots=slots))
    return run(load.specs, model, FIXED).makespan_s


def jobs(num_steps: int, sweep: Sequence[int] = SWEEP) -> dict[tuple[str, int], partial[float]]:
    """By load and slots; 0 slots: adaptive."""
    found: dict[tuple[str, int], partial[float]] = {}
    for load in loads(num_steps):
        found[load.name, 0] = partial(adaptive_s, load)
        found.update({(load.name, n): partial(fixed_s, load, n) for n in sweep})
    return found


def table(results: dict[tuple[str, int], float]) -> None:
    slots = sorted({n for _, n in results if n})
    print("\nseconds for the same work, by fixed slots, and adaptive")
    print(f"{'load':36}" + "".join(f"{n:>8}" for n in slots) + f"{'adaptive':>10}")
    for name in dict.fromkeys(name for name, _ in results):
        fixed = "".join(f"{results[name, n]:8.0f}" for n in slots)
        print(f"{name:36}{fixed}{results[name, 0]:10.0f}")


def rows(results: dict[tuple[str, int], float]) -> list[Row]:
    found = []
    for name in dict.fromkeys(name for name, _ in results):
        best_s = min(seconds for (load, n), seconds in results.items() if load == name and n)
        share = best_s / results[name, 0]
        found.append(at_least(f"adaptive, {name}: by the best fixed", share, "of 1", 0.95))
    return found
