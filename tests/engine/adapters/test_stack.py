"""Stacked adapters against one product a row."""

from __future__ import annotations

import random

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.adapters import shelf
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


def wanted_for(
    adapters: dict[str, Adapter], rows: list[str], x: torch.Tensor, y: torch.Tensor
) -> torch.Tensor:
    return y + torch.stack([by_hand(adapters[n], row) for n, row in zip(rows, x, strict=True)])


@pytest.mark.parametrize("seed", range(5))
def test_every_row_gets_its_own_adapter_while_adapters_come_and_go(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shelf, "MAX_SLOTS", 3)  # so that shelves fill, empty and end within runs
    draw = random.Random(seed)
    stack = empty_stack()
    adapters: dict[str, Adapter] = {}
    for number in range(16):
        targets = draw.choice([("proj",), ("proj",), ("q_proj", "up_proj"), ("down_proj",)])
        adapters[f"a{number}"] = make(draw.choice([4, 8, 8, 16, 20, 64]), number, targets)
        stack.add(f"a{number}", adapters[f"a{number}"])
        if number % 3 == 2:
            gone = draw.choice(sorted(adapters))
            stack.remove(gone)
            del adapters[gone]
        names = [draw.choice(sorted(adapters)) for _ in range(draw.randint(1, 20))]
        x, y = torch.randn(len(names), 10), torch.randn(len(names), 28)
        got = stack.plan(names).apply(1, "gate_up", x, y.clone())
        torch.testing.assert_close(got, wanted_for(adapters, names, x, y), rtol=1e-5, atol=1e-4)
    assert stack.names == sorted(adapters)


@pytest.mark.parametrize("seed", range(5))
def test_segments_long_and_short_are_rows_like_any_other(seed: int) -> None:
    draw = random.Random(seed)
    adapters = {f"a{i}": make(rank, i) for i, rank in enumerate([4, 8, 8, 16, 20, 64])}
    stack = empty_stack()
    for name, adapter in adapters.items():
        stack.add(name, adapter)
    names = [draw.choice(sorted(adapters)) for _ in range(12)]
    counts = [draw.choice([0, 1, 1, 2, 7, 40, 100]) for _ in names]
    rows = [name for name, count in zip(names, counts, strict=True) for _ in range(count)]
    x, y = torch.randn(len(rows), 10), torch.randn(len(rows), 28)
    got = stack.plan(names, counts).apply(1, "gate_up", x, y.clone())
    torch.testing.assert_close(got, wanted_for(adapters, rows, x, y), rtol=1e-5, atol=1e-4)


def test_a_long_segment_pads_nobody_and_is_not_gathered() -> None:
    stack = empty_stack()
    for name in "abc":
        stack.add(name, make(8, ord(name)))
    runs = stack.plan([*"abc", "b"], [1, 1, 1, 500]).runs
    assert sorted(run.width * (run.stop - run.start) for run in runs) == [3, 500]
    assert all(run.gather is None for run in runs)


def test_rows_in_the_preferred_order_are_not_gathered() -> None:
    adapters = {f"a{i}": make(8, i) for i in range(5)}
    stack = empty_stack()
    for name in ("a3", "a0", "a4", "a1", "a2"):
        stack.add(name, adapters[name])
    names = [f"a{i % 5}" for i in range(20)]
    order = stack.order(names)
    assert sorted(order) == list(range(20))
    rows = [names[row] for row in order]
    plan = stack.plan(rows)
    assert len(plan.runs) == 1 and plan.runs[0].gather is None
    assert stack.plan(names).runs[0].gather is not None
    x, y = torch.randn(20, 10), torch.randn(20, 28)
    got = plan.apply(1, "gate_up", x, y.clone())
    torch.testing.assert_close(got, wanted_for(adapters, rows, x, y), rtol=1e-5, atol=1e-4)


def test_a_plan_stays_valid_when_others_are_added_and_its_revision_says_when_not() -> None:
    adapters = {name: make(8, ord(name)) for name in "abcd"}
    stack = empty_stack()
    for name in "abc":
        stack.add(name, adapters[name])
    x, y = torch.randn(2, 10), torch.randn(2, 28)
    plan, revision = stack.plan("ca"), stack.revision
    wanted = wanted_for(adapters, ["c", "a"], x, y)
    stack.add("d", adapters["d"])
    stack.remove("d")  # the last one: nobody moves
    assert stack.revision == revision
    got = plan.apply(1, "gate_up", x, y.clone())
    torch.testing.assert_close(got, wanted, rtol=1e-5, atol=1e-4)
    stack.remove("b")  # c moves into its slot
    assert stack.revision != revision
    got = stack.plan("ca").apply(1, "gate_up", x, y.clone())
    torch.testing.assert_close(got, wanted, rtol=1e-5, atol=1e-4)


def test_bf16_rows_are_as_near_as_bf16_allows() -> None:
    stack = AdapterStack(SHAPES, 2, torch.bfloat16, torch.device("cpu"))
    adapters = {name: make(8, ord(name)) for name in "abc"}
    for name, adapter in adapters.items():
        stack.add(name, adapter)
    rows = list("abcabcca")
    x, y = torch.randn(8, 10), torch.zeros(8, 28)
    got = stack.plan(rows).apply(1, "gate_up", x.bfloat16(), y.bfloat16())
    wanted = wanted_for(adapters, rows, x, y)
    assert (got.float() - wanted).norm() < 0.02 * wanted.norm()


def test_what_a_slot_held_before_leaves_no_trace() -> None:
    stack = empty_stack()
    stack.add("all", make(8, 0))
    stack.add("stays", make(8, 1))
    stack.remove("all")
    few = make(5, 2, ("self_attn.q_proj", "layers.0.mlp.gate_proj", "mlp.up_proj"))
    few.tensors.update(make(5, 3, ("down_proj", "o_proj")).tensors)
    stack.add("few", few)
    x, y = torch.randn(1, 10), torch.zeros(1, 28)
    got = stack.plan(["few"]).apply(1, "gate_up", x, y.clone())
    assert not got[:, :14].any()  # gate of layer 1 has no weights
    torch.testing.assert_close(got, by_hand(few, x[0])[None], rtol=1e-5, atol=1e-4)


def test_an_adapter_takes_the_memory_of_what_it_adapts() -> None:
    stack = empty_stack()
    whole = stack.pack(make(8, 0))
    numbers = sum(8 * (num_out + num_in) for num_out, num_in in SHAPES.values())
    assert 4 * numbers <= whole.num_bytes <= 1.1 * 4 * numbers
    assert stack.pack(make(8, 0, ("down_proj",))).num_bytes < whole.num_bytes / 3
    assert stack.num_bytes == 0
    stack.install("a", whole)
    stack.install("b", whole)
    assert stack.num_bytes == 2 * whole.num_bytes


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 9), st.sampled_from([4, 16, 20])), max_size=40))
def test_no_slot_has_two_owners_and_none_is_lost(moves: list[tuple[int, int]]) -> None:
    """Each pair adds the adapter of that number, or removes it if it is there."""
    weights = {rank: make(rank, rank, ("q_proj",)) for rank in (4, 16, 20)}
    stack = empty_stack()
    held: dict[str, int] = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shelf, "MAX_SLOTS", 2)
        for number, rank in moves:
            name = f"a{number}"
            if name in held:
                stack.remove(name)
                del held[name]
            else:
                stack.prepare(stack.pack(weights[rank]))
                stack.add(name, weights[rank])
                held[name] = rank
            shelves = [s for some in stack._shelves.values() for s in some]
            owners = [name for s in shelves for name in s.names]
            assert sorted(owners) == sorted(held) == stack.names
            assert all(0 < len(s.names) <= s.num_slots for s in shelves)
            for name, (where, slot) in stack._places.items():
                assert where.names[slot] == name
                assert where.layout.key.rank >= held[name]
            names = sorted(held)
            covered = [
                s.names[slot]
                for run in stack.plan(names).runs
                for s in [run.shelf]
                for slot in range(run.start, run.stop)
            ]
            assert sorted(covered) == names


def test_a_shelf_that_is_full_can_have_its_pages_enlarged_and_holds_the_same() -> None:
    shapes = {name: (40 * num_out, 40 * num_in) for name, (num_out, num_in) in SHAPES.items()}
    stack = AdapterStack(shapes, 2, torch.float32, torch.device("cpu"))
    adapter = Adapter(random_adapter(shapes, 8, 0), 8, 8.0, ("proj",))
    packed = stack.pack(adapter)
    assert not stack.enlarge_pages()
    for number in range(shelf.MAX_SLOTS):
        stack.prepare(packed)
        stack.install(str(number), packed)
    x = torch.randn(shelf.MAX_SLOTS, 400)
    names = [str(number) for number in range(shelf.MAX_SLOTS)]
    before = stack.plan(names).apply(1, "gate_up", x, torch.zeros(len(x), 1120))
    while stack.enlarge_pages():
        pass
    after = stack.plan(names).apply(1, "gate_up", x, torch.zeros(len(x), 1120))
    assert before.any() and torch.equal(before, after)


def test_a_class_without_adapters_gives_its_memory_back() -> None:
    stack = empty_stack()
    stack.add("a", make(16, 0))
    stack.remove("a")
    assert stack._shelves == {} and stack.names == [] and stack.num_bytes == 0


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
