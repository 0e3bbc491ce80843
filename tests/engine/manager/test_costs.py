"""Expected costs, by hand."""

from __future__ import annotations

import pytest

from engine.manager.costs import UNKNOWN_S_PER_TOKEN, Costs

from .snapshots import task


def test_a_group_costs_its_rollout_and_its_share_of_the_pass() -> None:
    """2 groups a step: 3 s and half of 8 s."""
    known = task(group_s=3.0, pass_s=8.0, batch_size=2)
    assert Costs([known]).group_s(known) == 7.0


def test_a_new_task_costs_what_others_of_its_base_model_do_however_long_it_is_guessed_to_be() -> (
    None
):
    known = task("known", group_cost=100, group_s=3.0, pass_s=8.0, rollout_s=9.0, batch_size=2)
    other = task("other", group_cost=100, group_s=5.0, pass_s=4.0, rollout_s=3.0, batch_size=2)
    new = task("new", group_cost=5_000, group_s=0.0, batch_size=3)
    half = task("half", group_cost=5_000, group_s=1.5, batch_size=3)
    costs = Costs([known, other, new, half])
    assert costs.pass_s(new) == costs.rollout_s(new) == 6.0
    assert costs.group_s(new) == pytest.approx((3.0 + 5.0 + 1.5) / 3 + 2.0)
    assert costs.group_s(half) == pytest.approx(1.5 + 2.0)  # its pass is not known yet


def test_where_nobodys_costs_are_known_tokens_tell_how_tasks_compare() -> None:
    new = [task("a", group_cost=100, group_s=0.0), task("b", group_cost=300, group_s=0.0)]
    costs = Costs(new)
    assert costs.group_s(new[0]) == pytest.approx(100 * UNKNOWN_S_PER_TOKEN)
    assert costs.group_s(new[1]) == pytest.approx(3 * costs.group_s(new[0]))


def test_a_base_models_costs_say_nothing_of_another_ones() -> None:
    known = task("known", base_model="qwen", group_cost=1, group_s=1e6)
    new = task("new", group_cost=100, group_s=0.0)
    assert Costs([known, new]).group_s(new) == pytest.approx(100 * UNKNOWN_S_PER_TOKEN)


def test_what_remains_is_by_the_clock() -> None:
    known = task(max_steps=40, version=30, rollout_s=5.0, pass_s=2.0)
    assert Costs([known]).remaining_s(known) == 70.0
    new = task(max_steps=40, version=30)
    assert Costs([new]).remaining_s(new) == 0.0
