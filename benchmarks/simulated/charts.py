"""The simulated benchmark's charts, out of its results."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from benchmarks.figures import Panel, by_tasks, swim_lanes
from engine.simulation.performance.cost_models import FIRST_MODEL
from engine.simulation.performance.summary import Summary
from engine.simulation.performance.timeline import START_S

from .mix import EVERYWHERE, Case, Result

LANES_S = (300.0, 420.0)  # of the run, for the swim lanes


def draw(results: Mapping[Case, Result], folder: Path) -> None:
    """Write the charts that README and docs show."""
    panels = [
        Panel("steps per hour", "steps/h", _series(results, lambda s: s.steps_per_hour)),
        Panel(
            "occupancy-weighted utilisation",
            "%",
            _series(results, lambda s: 100 * s.occupancy),
            is_log=False,
        ),
        Panel("end-to-end time", "hours", _series(results, lambda s: s.makespan_s / 3600)),
    ]
    by_tasks(panels, folder / "simulated-tasks.svg")
    largest = max(case.num_tasks for case in results)
    for mode in ("marlaas", "shipped"):
        found = next(r for c, r in results.items() if (c.mode, c.num_tasks) == (mode, largest))
        window = (START_S + LANES_S[0], START_S + LANES_S[1])
        title = f"{mode}, {largest} tasks, {FIRST_MODEL.name}: two minutes of the run"
        swim_lanes(found.steps, found.spans, window, title, folder / f"simulated-{mode}.svg")


def _series(
    results: Mapping[Case, Result], value: Callable[[Summary], float]
) -> dict[str, list[tuple[int, float]]]:
    return {
        mode: sorted(
            (case.num_tasks, value(result.summary))
            for case, result in results.items()
            if case.mode == mode
        )
        for mode in EVERYWHERE
    }
