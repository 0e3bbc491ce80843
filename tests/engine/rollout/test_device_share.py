"""Shares of an engine's work, against numbers worked out by hand."""

from __future__ import annotations

import pytest

from engine.rollout import device_share
from engine.rollout.device_share import DeviceShare


def test_a_sequence_is_charged_its_part_of_what_was_computed_while_it_was_there() -> None:
    """Alone from 100 to 102, idle until 105, then four at work until 109."""
    share = DeviceShare()
    share.worked(102.0, took_s=2.0, num_running=1)
    share.worked(109.0, took_s=4.0, num_running=4)
    assert share.between(100.0, 102.0) == pytest.approx(2.0)
    assert share.between(102.0, 105.0) == pytest.approx(0.0)
    assert share.between(105.0, 109.0) == pytest.approx(1.0)
    assert share.between(101.0, 107.0) == pytest.approx(1.5)


def test_all_sequences_together_are_charged_what_the_engine_computed() -> None:
    """Three from 10 to 13, two of them until 14."""
    share = DeviceShare()
    for second in (11.0, 12.0, 13.0):
        share.worked(second, took_s=1.0, num_running=3)
    share.worked(14.0, took_s=1.0, num_running=2)
    charged = [share.between(10.0, until) for until in (13.0, 14.0, 14.0)]
    assert sum(charged) == pytest.approx(4.0)


def test_what_lies_before_the_first_or_after_the_last_point_costs_nothing() -> None:
    share = DeviceShare()
    share.worked(50.0, took_s=1.0, num_running=0)
    assert share.between(0.0, 49.0) == 0.0
    assert share.between(50.0, 1e9) == 0.0
    assert share.between(60.0, 40.0) == 0.0


def test_a_clock_that_is_set_back_charges_nobody_twice() -> None:
    share = DeviceShare()
    share.worked(100.0, took_s=1.0, num_running=1)
    share.worked(40.0, took_s=1.0, num_running=1)
    share.worked(101.0, took_s=1.0, num_running=1)
    assert share.between(99.0, 101.0) <= 3.0


def test_old_points_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device_share, "MAX_POINTS", 100)
    share = DeviceShare()
    for second in range(1, 200):
        share.worked(float(second), took_s=1.0, num_running=2)
    assert len(share._times) <= 101
    assert share.between(189.0, 199.0) == pytest.approx(5.0)
