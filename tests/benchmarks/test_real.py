"""Gains are those over one task after the other; the bound follows from its steps."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.campaign import Record
from benchmarks.real import (
    COMPUTING,
    WAITING,
    Bench,
    Outcome,
    bound,
    compare,
    run_counts,
    run_workload,
    submissions,
)
from engine.config import parse_config
from engine.simulation.performance.metrics import StepTime, TaskTime


def step(task: str, opened: float, ready: float, committed: float) -> StepTime:
    return StepTime(task, 0, opened, opened, ready, ready + 0.5, committed)


def outcome(*steps: StepTime) -> Outcome:
    tasks = [TaskTime(s.task, "bench", "gsm", 0.0, s.committed_at) for s in steps]
    return Outcome(Record(list(steps), tasks, [], {}), {"web": 0.1})


ALONE = outcome(step("a", 0, 9, 10), step("b", 10, 17, 20))
TOGETHER = outcome(step("a", 0, 1, 2), step("b", 0, 1, 2.5))


def test_the_bound_is_that_of_a_trainer_that_never_waits() -> None:
    assert bound(ALONE.record.steps) == (8, 2, 5)


def test_gains_hold_against_the_bars_where_there_are_any() -> None:
    outcomes = {"shipped": TOGETHER, "sequential": ALONE}
    rows = {row.name: row for row in compare(replace(WAITING, bars_from=2), outcomes)}
    gain = rows["waiting, shipped over sequential: steps an hour"]
    assert (gain.value, gain.bar, gain.holds) == (pytest.approx(8.0), 5.7, True)
    first = rows["waiting, shipped over sequential: median first step earlier"]
    assert (first.value, first.holds) == (pytest.approx(5.0), False)
    assert rows["waiting, shipped over sequential: time saved"].value == pytest.approx(87.5)
    assert all(row.bar is None for row in compare(WAITING, outcomes))  # two tasks are too few
    assert all(row.bar is None for row in compare(COMPUTING, outcomes))


def test_every_kind_of_task_takes_its_turn_with_a_seed_of_its_own() -> None:
    tasks = submissions(COMPUTING, num_tasks=4, num_steps=2)
    assert [task.name for task in tasks] == ["0000-gsm", "0001-amc", "0002-search", "0003-gsm"]
    assert [task.config["seed"] for task in tasks] == [0, 1, 2, 3]
    assert parse_config(dict(tasks[0].config)).max_steps == 2


def test_a_run_that_two_sections_need_is_made_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[tuple[str, int]] = []

    def run(workload: object, policy: str, num_tasks: int, steps: int, folder: Path) -> Outcome:
        made.append((policy, num_tasks))
        return ALONE if policy == "sequential" else TOGETHER

    monkeypatch.setattr("benchmarks.real.run", run)
    bench = Bench(tmp_path, 4, 1, ("shipped",), draws=False)
    run_workload(bench, WAITING)
    rows = {row.name: row.value for row in run_counts(bench)}
    assert made == [("shipped", 4), ("sequential", 4), ("shipped", 1), ("shipped", 2)]
    assert rows["waiting, shipped, 4 tasks: steps an hour"] == pytest.approx(2 * 3600 / 2.5)
