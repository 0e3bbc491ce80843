"""The limit on sequences in flight, against engines whose best is known."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from engine.manager import plan
from engine.manager.concurrency import (
    CALM_S,
    ENOUGH,
    GROWTH,
    MIN_LIMIT,
    best_level,
    level_of,
    see,
    sequences_at,
)
from engine.manager.policy import PAPER
from engine.manager.snapshot import Concurrency, DispatchGroup, SetConcurrency

from .snapshots import ENVIRONMENT, TRAINER, open_step, snapshot, task, waiting, worker

Speed = Callable[[int], float]  # tokens/s with so many sequences at work


def saturating(half: int) -> Speed:
    """A decode step of n sequences takes as long as half + n."""
    return lambda n: 1_000.0 * n / (half + n)


def thrashing(most: int) -> Speed:
    """Beyond `most` sequences, each more costs what is computed again."""
    return lambda n: 10.0 * n if n <= most else 10.0 * most * (most / n) ** 2


def run(
    speed: Speed,
    seconds: int,
    state: Concurrency | None = None,
    *,
    demand: int = 5_000,
    most: int = 10**9,
    now: float = 1_000.0,
) -> tuple[Concurrency, list[int]]:
    """An engine that has as many sequences as it may, preempts beyond `most`, and beats every 2 s.
    Returns how many it had."""
    state = state or Concurrency("smollm2")
    tokens, busy_s, preemptions = state.tokens, state.busy_s, state.preemptions
    running, found = min(state.limit or demand, demand), []
    for beat in range(seconds // 2):
        tokens, busy_s = tokens + round(2 * speed(running)), busy_s + 2.0
        preemptions += running > most
        counters = {"tokens": tokens, "busy_s": busy_s, "preemptions": preemptions}
        engine = worker("r#1", "rollout", num_running=running, **counters)
        state = see(state, [engine], now + 2 * beat)
        running = min(state.limit or demand, demand)
        found.append(running)
    return state, found


@pytest.mark.parametrize("half", [10, 100, 1_000])
def test_an_engine_that_never_preempts_gets_all_that_it_has_room_for(half: int) -> None:
    _, running = run(saturating(half), 900)
    assert set(running) == {5_000}


def test_speeds_that_vary_for_reasons_of_their_own_limit_nothing() -> None:
    """Every other beat a trainer takes half of the cores."""
    slow_too = (50.0, 25.0)
    beats = iter(range(1_000))
    _, running = run(lambda n: slow_too[next(beats) % 2], 900)
    assert set(running) == {5_000}


@pytest.mark.parametrize("most", [24, 100, 700])
def test_an_engine_that_thrashes_beyond_a_point_is_kept_near_it(most: int) -> None:
    speed = thrashing(most)
    _, running = run(speed, 1_200, most=most)
    served = sum(speed(n) for n in running[-150:]) / 150
    assert served >= 0.9 * speed(most)
    assert max(running[-150:]) <= most * GROWTH**4


def test_the_limit_follows_a_load_that_changes() -> None:
    state, _ = run(thrashing(400), 900, most=400)
    worse = thrashing(60)
    _, running = run(worse, 1_800, state, most=60, now=2_000.0)
    served = sum(worse(n) for n in running[-150:]) / 150
    assert served >= 0.75 * worse(60)


def test_after_a_while_without_preemptions_nothing_is_limited_any_more() -> None:
    state, running = run(thrashing(100), 900, most=100)
    assert running[-1] < 200
    state, running = run(saturating(10), int(CALM_S) + 100, state, now=2_000.0)
    assert running[-1] == 5_000
    assert state.preempted_level == -1


def test_the_limit_stays_above_a_quarter_of_what_was_preempted() -> None:
    """One sequence is as fast as many, and 400 are too many once in a while."""
    _, running = run(lambda n: 10.0, 600, demand=400, most=399)
    assert min(running) >= 90


def test_levels_grow_by_a_tenth_and_hold_what_they_say() -> None:
    assert level_of(1) == 0
    for sequences in range(1, 5_000):
        level = level_of(sequences)
        assert sequences <= sequences_at(level)
        assert level == 0 or sequences > sequences_at(level - 1)


def test_the_best_level_is_the_lowest_that_is_nearly_the_fastest() -> None:
    assert best_level(()) == -1
    assert best_level((0.0, 50.0, 0.0, 99.0, 100.0)) == 3
    assert best_level((0.0, 50.0, ENOUGH * 100 - 1, 100.0)) == 3


def test_counters_that_went_back_are_taken_as_they_are() -> None:
    """A worker restarted: nothing is concluded from the difference."""
    state, _ = run(saturating(50), 60)
    restarted = worker("r#2", "rollout", num_running=8, tokens=5, busy_s=0.5)
    after = see(state, [restarted], 2_000.0)
    assert (after.tokens, after.busy_s) == (5, 0.5)
    assert (after.speeds, after.limit) == (state.speeds, state.limit)


def test_an_idle_engine_changes_nothing() -> None:
    state, _ = run(saturating(50), 60)
    idle = worker("r#1", "rollout", tokens=state.tokens, busy_s=state.busy_s)
    assert see(state, [idle], 2_000.0) == state


def test_no_more_groups_are_sent_than_the_limit_lets_near() -> None:
    """Groups of 4: a limit of 9 sequences lets two near at once."""
    view = task(step=open_step(*(waiting(f"g{i}", i) for i in range(9))))
    workers = (worker("r#1", "rollout", slots=100), ENVIRONMENT, TRAINER)
    limited = snapshot(view, workers=workers, concurrency=(Concurrency("smollm2", limit=9),))
    assert sum(isinstance(c, DispatchGroup) for c in plan(limited)) == 2
    assert sum(isinstance(c, DispatchGroup) for c in plan(limited, PAPER)) == 9
    other = replace(limited, concurrency=(Concurrency("qwen", limit=9),))
    assert sum(isinstance(c, DispatchGroup) for c in plan(other)) == 9


def test_what_was_found_is_kept_by_a_command() -> None:
    engine = worker("r#1", "rollout", slots=8, num_running=4, tokens=100, busy_s=5.0)
    view = snapshot(task(), workers=(engine,))
    (command,) = [c for c in plan(view) if isinstance(c, SetConcurrency)]
    assert command.concurrency.tokens == 100
    assert not [c for c in plan(view, PAPER) if isinstance(c, SetConcurrency)]
    again = replace(view, concurrency=(command.concurrency,))
    assert not [c for c in plan(again) if isinstance(c, SetConcurrency)]


def test_the_limit_never_strangles() -> None:
    _, running = run(lambda n: 10.0, 600, most=0)
    assert min(running[1:]) >= MIN_LIMIT
