"""Figures of a run are compared in the model's time, within a tenth of each other."""

from __future__ import annotations

import pytest

from benchmarks.campaign import Record
from benchmarks.schedule_figures import compared, figures, in_model_time
from engine.simulation.performance.metrics import Span, StepTime, TaskTime

RECORD = Record(
    steps=[StepTime("0-gsm", 0, 0.0, 2.0, 20.0, 30.0, 40.0, tokens=300, version=0)],
    tasks=[TaskTime("0-gsm", "bench", "gsm", 0.0, 40.0)],
    spans=[
        Span("0-gsm", "rollout", "r", 2.0, 12.0, 100.0),
        Span("0-gsm", "rollout", "r", 10.0, 20.0, 200.0),
        Span("0-gsm", "training", "t", 30.0, 40.0),
    ],
    failed={},
)


def test_figures_follow_from_steps_and_spans() -> None:
    found = figures(RECORD.steps, RECORD.tasks, RECORD.spans, best_tokens_per_s=30.0)
    assert found.steps_per_hour == 90
    assert found.end_to_end_s == 40
    assert found.busy == pytest.approx((18 / 40 + 10 / 40) / 2)
    assert found.occupancy == pytest.approx((300 / 30 / 40 + 10 / 40) / 2)
    assert (found.first_step_p50_s, found.latency_p50_s) == (40, 40)


def test_a_clock_that_went_half_as_fast_is_set_right() -> None:
    record = in_model_time(RECORD, 2.0)
    assert record.steps[0].committed_at == 20
    assert (record.spans[1].start, record.spans[1].end) == (5, 10)
    assert record.tasks[0].ended_at == 20
    assert record.spans[1].tokens == 200


def test_a_figure_holds_within_a_tenth_of_the_simulated_one() -> None:
    expected = figures(RECORD.steps, RECORD.tasks, RECORD.spans, 30.0)
    record = in_model_time(RECORD, 1 / 1.2)
    found = figures(record.steps, record.tasks, record.spans, 30.0)
    ratios = {row.name: row for row in compared("mode", expected, expected) if row.bar}
    assert all(row.holds for row in ratios.values())
    rows = [row for row in compared("mode", found, expected) if row.bar]
    by_end = [row for row in rows if row.value and row.value == pytest.approx(1.2)]
    assert len(by_end) == 4
    assert not any(row.holds for row in by_end)
    busy = rows[1]
    assert (busy.value, busy.holds) == (pytest.approx(1.0), True)
