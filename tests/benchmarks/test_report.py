"""The table and the JSON line that every benchmark ends with."""

from __future__ import annotations

import json

import pytest

from benchmarks.report import Row, at_most, publish


def test_a_figure_that_misses_its_bar_is_said_in_the_table_and_the_line(
    capsys: pytest.CaptureFixture[str],
) -> None:
    rows = [at_most("cost", 23.4, "%", 20), Row("speed", 5.0, "tokens/s")]
    assert not publish("rollout", rows, quick=True)
    *table, line = capsys.readouterr().out.splitlines()
    assert any("MISSED" in row for row in table)
    found = json.loads(line)
    assert (found["bench"], found["quick"]) == ("rollout", True)
    assert [row["holds"] for row in found["rows"]] == [False, None]


def test_a_run_that_was_ended_before_its_first_figure_publishes_none(
    capsys: pytest.CaptureFixture[str],
) -> None:
    publish("rollout", [])
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["rows"] == []
