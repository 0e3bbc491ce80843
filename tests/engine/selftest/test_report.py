"""What a report says, and the arithmetic of its figures."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import pytest

from engine.selftest.figures import common_length, max_difference, mean_kl
from engine.selftest.report import Report, Row, at_least, at_most, failed, reported, skipped


def report(*rows: Row) -> Report:
    return Report("tiny", "cpu, 2 threads", "float32", rows, 12.3)


def test_a_bar_is_judged_inclusively_and_what_is_no_number_has_failed() -> None:
    assert at_most("x", 2.0, "s", 2.0).result == "ok"
    assert at_least("x", 2.0, "s", 2.0).result == "ok"
    assert at_most("x", 2.1, "s", 2.0, "too slow") == Row(
        "x", 2.1, "s", "≤ 2", "FAILED", "too slow"
    )
    assert at_most("x", math.nan, "s", 2.0).is_failed
    assert at_least("x", math.nan, "s", 2.0).is_failed


def test_one_failure_fails_the_report_and_is_named_in_the_sentence() -> None:
    bad = replace(at_most("KL", 1.0, "nats", 0.1), check="log-probs")
    assert not report(reported("speed", 5, "tokens/s"), bad).is_ok
    assert "1 of 2 figures FAILED (log-probs: KL)" in report(reported("a", 1, ""), bad).sentence()
    assert not report(failed("all of it", "boom")).is_ok


def test_a_skip_is_no_failure_but_skips_alone_are_no_success() -> None:
    skip = skipped("engine", "not installed")
    assert report(reported("speed", 5, ""), skip).is_ok
    assert "1 skipped" in report(reported("speed", 5, ""), skip).sentence()
    assert not report(skip).is_ok


def test_the_table_shows_figure_bar_and_reason_of_each_row() -> None:
    row = replace(at_most("KL", 0.25, "nats", 0.1, "apart"), check="log-probs", engine="torch")
    head, line, *_ = report(row).table().splitlines()
    assert head.split() == ["check", "what", "figure", "bar", "result"]
    assert " ".join(line.split()) == "torch: log-probs KL 0.25 nats ≤ 0.1 FAILED: apart"


def test_the_json_has_every_row_and_the_verdict() -> None:
    data = json.loads(json.dumps(report(reported("speed", 5.0, "tokens/s")).to_json()))
    assert (data["selftest"], data["ok"], data["device"]) == ("tiny", True, "cpu, 2 threads")
    assert data["rows"][0]["value"] == 5.0


def test_figures_against_numbers_worked_out_by_hand() -> None:
    a, b = [[-1.0, -2.0], [-3.0]], [[-1.0, -2.5], [-2.0]]
    assert max_difference(a, b) == 1.0
    # d = other - sampled: 0, -0.5, 1: exp(d) - 1 - d = 0, 0.1065307, 0.7182818
    assert mean_kl(a, b) == pytest.approx((0.10653066 + 0.71828183) / 3)
    assert common_length([1, 2, 3], [1, 2, 4]) == 2
    assert common_length([], [1]) == 0


def test_nothing_to_compare_or_no_number_is_no_agreement() -> None:
    for figure in (max_difference, mean_kl):
        assert math.isnan(figure([[]], [[]]))
        assert math.isnan(figure([[math.nan, -1.0]], [[-1.0, -1.0]]))
    assert mean_kl([[-1000.0]], [[-1.0]]) == math.inf
