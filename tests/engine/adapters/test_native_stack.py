"""Adapters that each lie by themselves."""

from __future__ import annotations

import pytest
import torch

from engine.adapters.native_stack import NativeStack
from tests.engine.adapters.test_stack import SHAPES, make


def stack_of(*names: str) -> NativeStack:
    stack = NativeStack(SHAPES, 2, torch.bfloat16)
    for seed, name in enumerate(names):
        stack.add(name, make(8, seed))
    return stack


def test_units_gather_the_rows_of_an_adapter_from_anywhere() -> None:
    plan = stack_of("a", "b").plan(["a", "b", None, "a"], [3, 2, 1, 3])
    (rows, starts, ranks, weights, _), _ = plan.held
    assert rows.tolist() == [0, 1, 2, 6, 7, 8, 3, 4, 5]
    assert starts.tolist() == [0, 4, 6, 8, 9]
    assert ranks.tolist() == [8, 8, 8, 0]
    assert weights[0] == weights[1] != weights[2] and weights[3] == 0


def test_a_plan_outlives_its_adapters() -> None:
    stack = stack_of("a", "b")
    weights, revision = stack._placed["a"].weights, stack.revision
    plan = stack.plan(["a"])
    stack.remove("a")
    stack.add("c", make(40, 3, ("down_proj",)))  # another layout: a new table of offsets
    assert stack.names == ["b", "c"] and stack.revision != revision
    assert plan.held[1][0][0].weights is weights
    assert plan.targets is not stack._targets


def test_a_rank_beyond_all_reason_is_refused() -> None:
    with pytest.raises(ValueError, match="rank 2000 is more than 1024"):
        stack_of().pack(make(2000, 0, ("o_proj",)))


def test_memory_is_that_of_the_adapters() -> None:
    stack = stack_of("a", "b")
    size = stack.pack(make(8, 0)).num_bytes
    assert stack.num_bytes == 2 * size
    stack.remove("b")
    assert stack.num_bytes == size
