"""Work is drawn by seed, and is the paper's mix."""

from __future__ import annotations

from statistics import mean

import pytest

from engine.simulation.performance.workload import AMC, GSM, SEARCH, TaskSpec, mixed_tasks


def test_an_episode_depends_on_its_place_alone() -> None:
    spec = TaskSpec("a", GSM, 3)
    assert spec.group(1, 5) == TaskSpec("a", GSM, 20, max_staleness=2).group(1, 5)
    others = [spec.group(1, 6), spec.group(2, 5), TaskSpec("a", GSM, 3, seed=1).group(1, 5)]
    assert spec.group(1, 5) not in others


def test_a_step_is_its_groups_in_order() -> None:
    spec = TaskSpec("a", SEARCH, 1, batch_size=3, group_size=2)
    assert spec.step(0) == [*spec.group(0, 0), *spec.group(0, 1), *spec.group(0, 2)]


@pytest.mark.parametrize(("kind", "tokens"), [(GSM, 290), (AMC, 1160), (SEARCH, 450)])
def test_answers_are_as_long_as_the_mix_says(kind, tokens: int) -> None:
    episodes = [e for n in range(10) for e in TaskSpec("a", kind, 10).step(n)]
    assert mean(e.num_tokens for e in episodes) == pytest.approx(tokens, rel=0.06)
    low, high = kind.length.low, kind.length.high
    assert all(low <= turn <= high for e in episodes for turn in e.tokens)


def test_only_search_waits_for_tools_between_its_turns() -> None:
    (search,) = TaskSpec("a", SEARCH, 1).group(0, 0)[:1]
    assert (len(search.tokens), len(search.tools_s)) == (4, 3)
    assert all(0.2 <= seconds <= 30 for seconds in search.tools_s)
    assert search.away_s == sum(search.tools_s)
    (plain,) = TaskSpec("a", GSM, 1).group(0, 0)[:1]
    assert (len(plain.tokens), plain.tools_s) == (1, ())


def test_the_mix_takes_each_kind_in_turn() -> None:
    kinds = [spec.kind.name for spec in mixed_tasks(32, 1)]
    assert kinds[:4] == ["gsm", "amc", "search", "gsm"]
    assert (kinds.count("gsm"), kinds.count("amc"), kinds.count("search")) == (11, 11, 10)
