"""The charts of the schedule benchmarks, as SVG: figures by number of tasks, and swim lanes.

Knows nothing of where figures come from: series by mode, spans and step times are handed to it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import matplotlib

matplotlib.use("svg")
matplotlib.rcParams["svg.hashsalt"] = "marlaas"  # the same chart is the same file
matplotlib.rcParams["svg.fonttype"] = "none"  # text stays text

from matplotlib import pyplot as plt  # noqa: E402
from matplotlib.axes import Axes  # noqa: E402
from matplotlib.figure import Figure  # noqa: E402
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter  # noqa: E402

from engine.simulation.performance.metrics import Span, StepTime, union  # noqa: E402

# Okabe and Ito's colours, which colour-blind people can tell apart
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
IMAGES = Path(__file__).resolve().parents[1] / "docs" / "images"
ROLLOUT, WAITING, TRAINING = "#56B4E9", "#DDDDDD", "#D55E00"


@dataclass(frozen=True)
class Panel:
    """One chart: a value by number of tasks, for each mode."""

    title: str
    unit: str
    series: Mapping[str, Sequence[tuple[int, float]]]
    is_log: bool = True


def by_tasks(panels: Sequence[Panel], path: Path) -> None:
    """Charts side by side, with the number of tasks to the right."""
    figure, axes = plt.subplots(1, len(panels), figsize=(4.2 * len(panels), 3.4), squeeze=False)
    for panel, ax in zip(panels, axes[0], strict=True):
        _draw_panel(panel, ax)
    handles, labels = axes[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="lower center", ncols=len(labels), frameon=False)
    figure.tight_layout(rect=(0, 0.09, 1, 1))
    _save(figure, path)


def _draw_panel(panel: Panel, ax: Axes) -> None:
    for place, ((mode, points), colour) in enumerate(
        zip(panel.series.items(), COLOURS, strict=False)
    ):
        counts, values = zip(*points, strict=True)
        line = "o--" if place % 2 else "o-"  # of two that lie on each other both are seen
        ax.plot(counts, values, line, markersize=3.5, color=colour, label=mode)
    ax.set_xscale("log", base=2)
    ax.set_xticks(counts, [str(count) for count in counts])
    if panel.is_log:
        ax.set_yscale("log")
        ax.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        ax.yaxis.set_minor_formatter(NullFormatter())
    else:
        ax.set_ylim(bottom=0)
    ax.set_xlabel("tasks")
    ax.set_title(f"{panel.title}, {panel.unit}", fontsize=10)
    ax.grid(alpha=0.3)
    ax.spines[["top", "right"]].set_visible(False)


def swim_lanes(
    steps: Sequence[StepTime],
    spans: Sequence[Span],
    window: tuple[float, float],
    title: str,
    path: Path,
) -> None:
    """A lane a task (generating, waiting for the trainer, training), one for engine and trainer."""
    tasks = sorted({step.task for step in steps})
    lanes = {task: place for place, task in enumerate(tasks)}
    figure, ax = plt.subplots(figsize=(10, 0.8 + 0.17 * (len(lanes) + 2)))
    for step in steps:
        lane = lanes[step.task]
        _bar(ax, lane, step.begun_at, step.ready_at, window, ROLLOUT)
        _bar(ax, lane, step.ready_at, step.trained_at, window, WAITING)
        _bar(ax, lane, step.trained_at, step.committed_at, window, TRAINING)
    for place, (stage, colour) in enumerate({"rollout": ROLLOUT, "training": TRAINING}.items()):
        for start, end in union((s.start, s.end) for s in spans if s.stage == stage):
            _bar(ax, len(lanes) + 0.5 + place, start, end, window, colour)
    ax.set_yticks(
        [*lanes.values(), len(lanes) + 0.5, len(lanes) + 1.5], [*lanes, "engine", "trainer"]
    )
    ax.tick_params(axis="y", labelsize=6)
    ax.invert_yaxis()
    ax.set_xlim(0, window[1] - window[0])
    ax.set_xlabel("seconds")
    ax.set_title(title, fontsize=10)
    names = {"generating, tools": ROLLOUT, "waiting to train": WAITING, "training": TRAINING}
    patches = [plt.Rectangle((0, 0), 1, 1, color=colour) for colour in names.values()]
    figure.legend(patches, names, loc="lower right", fontsize=7, ncols=3, frameon=False)
    figure.tight_layout()
    _save(figure, path)


def _bar(
    ax: Axes, lane: float, start: float, end: float, window: tuple[float, float], colour: str
) -> None:
    start, end = max(start, window[0]), min(end, window[1])
    if end > start:
        ax.barh(lane, end - start, left=start - window[0], height=0.8, color=colour, linewidth=0)


def _save(figure: Figure, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)
