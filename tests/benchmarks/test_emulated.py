"""Sequential is the sum of solo runs of each kind."""

from __future__ import annotations

import pytest

from benchmarks.emulated import gains, solo_s
from engine.simulation.performance.metrics import TaskTime
from engine.simulation.performance.workload import mixed_tasks

ONE_AFTER_THE_OTHER = [
    TaskTime("0002-search", "bench", "search", 0.0, 100.0),
    TaskTime("0000-gsm", "bench", "gsm", 0.0, 20.0),
    TaskTime("0001-amc", "bench", "amc", 0.0, 70.0),
]


def test_a_kind_takes_what_lies_between_the_ends() -> None:
    assert solo_s(ONE_AFTER_THE_OTHER) == {"gsm": 20.0, "amc": 50.0, "search": 30.0}


def test_gains_are_over_the_sum_of_all_tasks_alone() -> None:
    tasks = mixed_tasks(4, num_steps=3)  # gsm, amc, search, gsm
    times, saved = gains(tasks, 90.0, solo_s(ONE_AFTER_THE_OTHER))
    assert times == pytest.approx(3 * (20 + 50 + 30 + 20) / 90)
    assert saved == pytest.approx(1 - 90 / 360)
