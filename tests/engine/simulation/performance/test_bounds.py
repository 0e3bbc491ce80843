"""The least time of a workload, against numbers worked out by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from engine.simulation.performance.bounds import bounds
from engine.simulation.performance.cost_models import CostModel, EngineCost
from engine.simulation.performance.workload import Kind, LogNormal, TaskSpec


def constant(value: float) -> LogNormal:
    return LogNormal(0.0, 0.0, value, value)


COST = EngineCost(step_s=0.5, sequence_s=0.01, slots=1000)
MODEL = CostModel("test", COST, pass_s={"long": 7.0, "tools": 1.0, "short": 2.0}, joint_share=0.25)
LONG = Kind("long", constant(100))
SHORT = Kind("short", constant(10))
TOOLS = Kind("tools", constant(10), turns=2, tool=constant(60))


def spec(name: str, kind: Kind, num_steps: int = 3, max_staleness: int = 0) -> TaskSpec:
    return TaskSpec(name, kind, num_steps, batch_size=2, group_size=2, max_staleness=max_staleness)


SHORT_S = 10 * 0.5 + 4 * 10 * 0.01  # of a short step's rollout, alone


def test_passes_are_shared_by_the_trainers_once_a_step_can_be_ready() -> None:
    specs = [spec("a", LONG), spec("b", SHORT)]
    assert bounds(specs, MODEL).training_s == pytest.approx(SHORT_S + 3 * 7 + 3 * 2)
    assert bounds(specs, replace(MODEL, num_trainers=3)).training_s == pytest.approx(SHORT_S + 9)


def test_joint_passes_cost_least_with_equals_together() -> None:
    # 7 7 | 7 2 | 2 2: each first one whole, a quarter of each second.
    least = bounds([spec("a", LONG), spec("b", SHORT)], MODEL, steps_per_pass=2)
    assert least.training_s == pytest.approx(SHORT_S + (7 + 1.75) + (7 + 0.5) + (2 + 0.5))


def test_an_engine_makes_every_token_in_no_fewer_steps_than_the_longest_chain() -> None:
    specs = [spec("a", LONG), spec("b", SHORT)]
    tokens = 3 * 4 * 100 + 3 * 4 * 10
    least = bounds(specs, MODEL)
    assert least.rollout_s == pytest.approx(0.5 * 300 + 0.01 * tokens + 2)  # the shorter pass
    assert least.rollout_at_best_s == pytest.approx(0.01 * tokens)


def test_few_slots_make_more_steps() -> None:
    least = bounds([spec("a", LONG)], replace(MODEL, engine=replace(COST, slots=2)))
    assert least.rollout_s == pytest.approx(0.5 * 1200 / 2 + 0.01 * 1200 + 7)


def test_engines_share_what_must_be_done() -> None:
    one = bounds([spec("a", LONG)], MODEL).rollout_s - 7  # its last pass
    four = bounds([spec("a", LONG)], replace(MODEL, num_engines=4)).rollout_s - 7
    assert four == pytest.approx(one / 4)


def test_a_chain_has_tools_and_passes() -> None:
    # 20 tokens by themselves and 60 s of tools outlast all tokens together.
    assert bounds([spec("a", TOOLS)], MODEL).chain_s == pytest.approx(3 * (20 * 0.51 + 60 + 1))
    # Here it is the step's 400 tokens in 100 decode steps.
    assert bounds([spec("a", LONG)], MODEL).chain_s == pytest.approx(3 * (50 + 4 + 7))


def test_staleness_lets_steps_of_a_task_overlap_but_not_their_passes() -> None:
    # Rollouts of 54 s. Strict: 3 x 61. With k = 1 versions 0 and 0 generate steps 0 and 1 at once,
    # passes end at 61 and 68, and step 2 waits for version 1: 61 + 54 + 7.
    assert bounds([spec("a", LONG, max_staleness=1)], MODEL).chain_s == pytest.approx(122)
    assert bounds([spec("a", LONG, max_staleness=2)], MODEL).chain_s == pytest.approx(54 + 3 * 7)


def test_the_largest_bound_is_the_bottleneck() -> None:
    least = bounds([spec("a", TOOLS)], MODEL)
    assert least.bottleneck == "chain"
    assert least.makespan_s == least.chain_s
    assert bounds([spec(str(n), SHORT) for n in range(50)], MODEL).bottleneck == "training"
