"""Stacked adapters against one product a row."""

from __future__ import annotations

import random

import pytest
import torch

from engine.adapters.files import Adapter, lora_names
from engine.adapters.plan import cut_runs
from engine.adapters.stack import AdapterStack
from tests.tiny import random_adapter

SHAPES = {
    f"model.layers.{layer}.{name}": shape
    for layer in range(2)
    for name, shape in {
        "self_attn.q_proj": (12, 10),
        "self_attn.k_proj": (6, 10),
        "self_attn.v_proj": (6, 10),
        "self_attn.o_proj": (10, 12),
        "mlp.gate_proj": (14, 10),
        "mlp.up_proj": (14, 10),
        "mlp.down_proj": (10, 14),
    }.items()
}
GATE, UP = "model.layers.1.mlp.gate_proj", "model.layers.1.mlp.up_proj"


def make(rank: int, seed: int, targets: tuple[str, ...] = ("proj",)) -> Adapter:
    chosen = {name: shape for name, shape in SHAPES.items() if name.endswith(targets)}
    return Adapter(random_adapter(chosen, rank, seed, size=1.0), rank, 1.5 * rank, targets)


def empty_stack() -> AdapterStack:
    return AdapterStack(SHAPES, 2, torch.float32, torch.device("cpu"))


def by_hand(adapter: Adapter, x: torch.Tensor) -> torch.Tensor:
    """gate and up of layer 1 for one row."""
    parts = []
    for module, width in ((GATE, 14), (UP, 14)):
        name_a, name_b = lora_names(module)
        if name_a not in adapter.tensors:
            parts.append(torch.zeros(width))
            continue
        a, b = (torch.from_numpy(adapter.tensors[name]) for name in (name_a, name_b))
        parts.append(adapter.scale * (b @ (a @ x)))
    return torch.cat(parts)


@pytest.mark.parametrize("seed", range(5))
def test_every_row_gets_its_own_adapter_while_adapters_come_and_go(seed: int) -> None:
    draw = random.Random(seed)
    stack, adapters = empty_stack(), {}
    for number in range(12):
        targets = draw.choice([("proj",), ("q_proj", "up_proj"), ("down_proj",)])
        adapters[f"a{number}"] = make(draw.choice([1, 3, 8, 16, 20]), number, targets)
        stack.add(f"a{number}", adapters[f"a{number}"])
        if number % 3 == 2:
            gone = draw.choice(sorted(adapters))
            stack.remove(gone)
            del adapters[gone]
        names = [draw.choice(sorted(adapters)) for _ in range(draw.randint(1, 20))]
        x, y = torch.randn(len(names), 10), torch.randn(len(names), 28)
        wanted = y + torch.stack(
            [by_hand(adapters[n], row) for n, row in zip(names, x, strict=True)]
        )
        got = stack.plan(names).apply(1, "gate_up", x, y.clone())
        torch.testing.assert_close(got, wanted, rtol=1e-5, atol=1e-4)
    assert stack.names == sorted(adapters)


def test_a_class_without_adapters_gives_its_memory_back() -> None:
    stack = empty_stack()
    stack.add("a", make(16, 0))
    stack.remove("a")
    assert stack._shelves == {} and stack.names == []


def test_an_adapter_that_does_not_fit_changes_nothing() -> None:
    stack = empty_stack()
    alien = Adapter(random_adapter({GATE: (14, 11)}, 2, 0), 2, 2.0, ("gate_proj",))
    with pytest.raises(ValueError, match="does not fit"):
        stack.add("alien", alien)
    assert stack.names == []


@pytest.mark.parametrize(
    ("counts", "runs"),
    [
        ([8, 8, 8], [(0, 3)]),  # nothing to pad
        ([0, 5, 0], [(1, 2)]),  # ends without rows are left out
        ([1, 1, 100, 1], [(0, 2), (2, 4)]),  # 400 padded for 103 rows would be four times
        ([4, 2, 0, 4], [(0, 4)]),  # 16 padded for 10 rows
        ([0, 0], []),
    ],
)
def test_runs_are_cut_where_padding_would_more_than_double_the_work(
    counts: list[int], runs: list[tuple[int, int]]
) -> None:
    assert cut_runs(counts) == runs


@pytest.mark.parametrize("seed", range(20))
def test_runs_cover_every_row_once_and_waste_at_most_half(seed: int) -> None:
    draw = random.Random(seed)
    counts = [draw.choice([0, 0, 1, 2, 8, 50]) for _ in range(draw.randint(1, 30))]
    runs = cut_runs(counts)
    covered = [slot for start, stop in runs for slot in range(start, stop)]
    assert covered == sorted(set(covered))
    assert {s for s, count in enumerate(counts) if count} <= set(covered)
    for start, stop in runs:
        assert max(counts[start:stop]) * (stop - start) <= 2 * sum(counts[start:stop])
