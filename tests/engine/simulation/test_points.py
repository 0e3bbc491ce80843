"""Cancelling and pausing at every event of a small run."""

from __future__ import annotations

import pytest

from engine.simulation.points import ENDS, all_points, interfere

STRIDE = 7  # of the points in a quick run; prime, so that it follows no rhythm of the run's


@pytest.mark.parametrize(
    "first", [0, *(pytest.param(n, marks=pytest.mark.slow) for n in range(1, STRIDE))]
)
def test_cancelling_or_pausing_at_any_event_keeps_every_invariant(first: int) -> None:
    points = list(all_points())[first::STRIDE]
    ends = set()
    for act, point in points:
        ended, other = interfere(act, point)
        assert ended in ENDS[act], (act, point)
        assert other == "succeeded", (act, point)
        ends.add(ended)
    assert len(points) > 30
    assert ends == {"cancelled", "succeeded"}
