"""The numbers follow their owners, whatever moves, and never leave the arena."""

from __future__ import annotations

import pytest
import torch

from engine.rollout.kv_arena import BLOCK_TOKENS, KvArena
from engine.rollout.kv_rows import KeptTurn

LAYERS, HEADS, DIM = 2, 2, 4


@pytest.fixture
def arena() -> KvArena:
    """Three blocks."""
    one = KvArena.bytes_for(1, LAYERS, HEADS, DIM, torch.float32)
    return KvArena(LAYERS, HEADS, DIM, torch.float32, torch.device("cpu"), 3 * one)


def fill(arena: KvArena, owner: str, length: int, seed: int) -> torch.Tensor:
    """Write random keys and values; returns them, (L, 2 · heads, length, D)."""
    numbers = torch.randn(
        LAYERS, length, 2 * HEADS, DIM, generator=torch.Generator().manual_seed(seed)
    )
    first, room = arena.row_of(owner)
    assert room >= length
    rows = torch.full((length,), first), torch.full((length,), room), torch.arange(length)
    for layer in range(LAYERS):
        arena.write(layer, arena.addresses(*rows), numbers[layer])
    return numbers.transpose(1, 2)


def contents(arena: KvArena, owner: str, length: int) -> torch.Tensor:
    first, room = arena.row_of(owner)
    rows = [
        torch.cat(arena.read(layer, first, 1, room), 1)[0, :, :length] for layer in range(LAYERS)
    ]
    return torch.stack(rows)


def test_what_is_written_is_read_and_stays_when_others_leave(arena: KvArena) -> None:
    written = {}
    for seed, name in enumerate("abcdefghijkl"):
        assert arena.place(name, 100)
        written[name] = fill(arena, name, 100, seed)
    for name in "acgb":
        arena.remove(name)
        del written[name]
        for left, numbers in written.items():
            assert torch.equal(contents(arena, left, 100), numbers)


def test_a_row_that_grows_keeps_its_contents(arena: KvArena) -> None:
    assert arena.place("a", 100) and arena.place("b", 100)
    numbers, other = fill(arena, "a", 100, 1), fill(arena, "b", 100, 2)
    assert arena.require("a", 300)
    assert arena.row_of("a")[1] == 512
    assert torch.equal(contents(arena, "a", 100), numbers)
    assert torch.equal(contents(arena, "b", 100), other)


def test_a_row_that_fills_a_hole_brings_what_its_owner_asked_for_and_no_more(
    arena: KvArena,
) -> None:
    """Padding that was never written has no memory yet, and is to get none."""
    assert arena.place("a", 50) and arena.place("b", 20)
    first, room = arena.row_of("b")
    arena.read(0, first, 1, room)[0][..., 100, :] = 9.0  # behind what b has asked for
    assert arena.require("b", 60)
    numbers = fill(arena, "b", 60, 1)
    arena.remove("a")
    assert torch.equal(contents(arena, "b", 60), numbers)
    assert contents(arena, "b", 128)[:, :, 60:].abs().sum() == 0


def test_a_row_that_moved_leaves_nothing_behind(arena: KvArena) -> None:
    """Or what is no number, found only later, would be where a stranger's row is then."""
    assert arena.place("a", 100) and arena.place("b", 100)
    first, room = arena.row_of("b")
    arena.read(0, first, 1, room)[0][..., :100, :] = float("nan")
    arena.remove("a")  # b moves
    assert arena.require("b", 300)  # and again
    arena.remove("b", may_hold_nan=True)
    for name in "cdefgh":
        assert arena.place(name, 100)
        assert contents(arena, name, 100).isfinite().all()


def test_adjacent_rows_are_one_run(arena: KvArena) -> None:
    names = [f"s{i}" for i in range(12)]
    for name in names:
        assert arena.place(name, 128)
    (run,) = arena.runs()
    assert run.owners == tuple(names) and run.length == 128
    keys, values = arena.read(0, run.first, len(names), run.length)
    fill(arena, "s10", 5, 3)
    assert keys[10].abs().sum() > 0 and values[10].abs().sum() > 0 and keys[9].abs().sum() == 0


def test_a_session_is_kept_restored_and_forgotten(arena: KvArena) -> None:
    assert arena.place("turn1", 60)
    numbers = fill(arena, "turn1", 60, 1)
    arena.keep("turn1", "s", KeptTurn("adapter", tuple(range(60))))
    arena.remove("turn1")
    assert arena.num_kept == 1 and arena.place("turn2", 90)
    arena.restore("s", "turn2", 60)
    assert torch.equal(contents(arena, "turn2", 60), numbers)
    arena.forget("s")
    arena.remove("turn2")
    assert arena.num_kept == 0 and arena.bytes_used == 0


def test_the_oldest_session_makes_way(arena: KvArena) -> None:
    for name in "xyz":
        assert arena.place("turn", 600)
        fill(arena, "turn", 600, 1)
        arena.keep("turn", name, KeptTurn("adapter", tuple(range(600))))
        arena.remove("turn")
    assert arena.kept("x") is None and arena.kept("y") and arena.kept("z")
    assert arena.place("big", 3 * BLOCK_TOKENS) is False  # a row of four blocks
    assert arena.place("big", BLOCK_TOKENS + 1)
    assert arena.kept("y") is None


def test_what_was_not_finite_is_cleared_before_the_next_owner(arena: KvArena) -> None:
    assert arena.place("bad", 128)
    fill(arena, "bad", 128, 1)
    first, room = arena.row_of("bad")
    arena.write(
        0,
        arena.addresses(torch.tensor([first]), torch.tensor([room]), torch.tensor([7])),
        torch.full((1, 2 * HEADS, DIM), float("nan")),
    )
    arena.remove("bad", may_hold_nan=True)
    assert arena.place("good", 128)
    assert contents(arena, "good", 128).isfinite().all()


def test_no_more_is_used_than_was_given(arena: KvArena) -> None:
    count = 0
    while arena.place(f"s{count}", 200):
        count += 1
    assert count == 3 * BLOCK_TOKENS // 256
    assert arena.bytes_used == arena.num_bytes and arena.tokens_free == 0
