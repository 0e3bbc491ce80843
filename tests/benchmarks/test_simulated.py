"""Rows and charts of the simulated benchmark, out of figures that are made up."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from xml.etree import ElementTree

import pytest

from benchmarks.figures import Panel, by_tasks, swim_lanes
from benchmarks.simulated import concurrency, fairness, mix
from benchmarks.simulated.fairness import Flood, Shares
from benchmarks.simulated.jobs import run_all
from benchmarks.simulated.mix import Case
from benchmarks.simulated.modes import MODES
from engine.simulation.performance.cost_models import FIRST_MODEL
from engine.simulation.performance.metrics import Span, StepTime


def test_fair_shares_count_weights() -> None:
    assert Shares((300, 100), (3, 1)).jain == 1
    assert Shares((300, 100), (1, 1)).jain == pytest.approx(16 / 20)
    assert Shares((300, 100), (1, 1)).ratio == 3


def test_rows_of_fairness_hold_what_is_asked() -> None:
    rows = fairness.rows(
        {
            "flood": Flood(alone_s=20, flooded_s=39),
            "equal": Shares((300, 290), (1, 1)),
            "weights": Shares((270, 100), (3, 1)),
            "too far": Shares((260, 100), (3, 1)),
        }
    )
    verdicts = {row.name: row.holds for row in rows if row.bar is not None}
    assert verdicts == {
        "flood: delay": True,
        "fairness, equal: Jain": True,
        "fairness, weights: ratio off by": True,
        "fairness, too far: ratio off by": False,
    }


def test_a_quick_look_has_no_figures_of_fairness_that_mean_nothing() -> None:
    assert set(fairness.jobs(quick=True)) == {"flood"}
    rows = fairness.unmeasured_rows()
    assert len(rows) == len(fairness.CONTESTS)
    assert {(row.value, row.bar, row.holds) for row in rows} == {(None, None, None)}


def test_adaptive_is_compared_with_the_best_fixed_setting() -> None:
    results = {("load", 0): 100.0, ("load", 64): 120.0, ("load", 128): 96.0}
    (row,) = concurrency.rows(results)
    assert (row.value, row.holds) == (0.96, True)
    (row,) = concurrency.rows({**results, ("load", 0): 110.0})
    assert row.holds is False


def test_the_perturbations_change_one_thing_each() -> None:
    half, twice, early = mix.PERTURBED
    assert [m.pass_s["gsm"] for m in (half, twice, early)] == [1.25, 5.0, 2.5]
    assert half.engine == twice.engine == FIRST_MODEL.engine
    assert early.engine.best_tokens_per_s == FIRST_MODEL.engine.best_tokens_per_s / 2


@pytest.fixture(scope="module")
def results() -> dict[str, mix.Summary]:
    """Three modes of three tasks of one step, as the tables have them."""
    modes = ("sequential", "marlaas", "beyond")
    return {mode: mix.solve(Case(mode, 3, 1)).summary for mode in modes}


def test_a_table_has_every_mode_and_the_bound(
    results: dict[str, mix.Summary], capsys: pytest.CaptureFixture[str]
) -> None:
    mix.table("three tasks", results)
    printed = capsys.readouterr().out
    assert all(mode in printed for mode in results)
    assert f"{results['marlaas'].bound_s:.0f} s" in printed


def test_rows_of_perturbed_mixes_are_ratios_to_sequential(results: dict[str, mix.Summary]) -> None:
    rows = {row.name: row.value for row in mix.perturbed_rows("x", results, "marlaas")}
    base, ours = results["sequential"], results["marlaas"]
    assert rows["x: steps per hour, times sequential"] == pytest.approx(
        base.makespan_s / ours.makespan_s, rel=1e-6
    )
    assert rows["x: end-to-end time, lower by"] == pytest.approx(
        100 * (1 - ours.makespan_s / base.makespan_s)
    )


def test_tasks_that_run_alone_first_tell_how_long_they_take() -> None:
    found = mix.solve(Case("sequential", 3, 1))
    assert len(found.alone_s) == 3
    assert sum(found.alone_s.values()) == pytest.approx(found.summary.makespan_s, abs=1)


def test_modes_beyond_the_paper_are_the_shipped_policy_and_what_they_are_named_for() -> None:
    assert MODES["overlap"].max_staleness == 1
    assert MODES["joint_passes"].policy.steps_per_pass > 1
    assert MODES["shipped"].max_staleness == 0


def test_jobs_bring_their_results_by_key() -> None:
    assert run_all({"a": partial(pow, 2, 3), "b": partial(pow, 3, 2)}, 2) == {"a": 8, "b": 9}


def test_charts_are_the_same_file_each_time_and_name_their_modes(tmp_path: Path) -> None:
    panel = Panel("steps per hour", "steps/h", {"ours": [(1, 10.0), (32, 300.0)]})
    for name in ("one.svg", "two.svg"):
        by_tasks([panel, panel], tmp_path / name)
    assert (tmp_path / "one.svg").read_bytes() == (tmp_path / "two.svg").read_bytes()
    assert "ours" in _text(tmp_path / "one.svg")


def test_swim_lanes_have_a_lane_a_task_and_one_for_each_device(tmp_path: Path) -> None:
    steps = [StepTime("task-a", 0, 0, 1, 5, 7, 9), StepTime("task-b", 0, 0, 1, 6, 9, 12)]
    spans = [Span("", "rollout", "w", 1, 6), Span("task-a", "training", "t", 7, 9)]
    swim_lanes(steps, spans, (0, 10), "ten seconds", tmp_path / "lanes.svg")
    text = _text(tmp_path / "lanes.svg")
    assert all(name in text for name in ("task-a", "task-b", "engine", "trainer", "ten seconds"))


def _text(path: Path) -> str:
    return " ".join(ElementTree.parse(path).getroot().itertext())
