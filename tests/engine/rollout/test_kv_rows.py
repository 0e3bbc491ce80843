"""The bookkeeping of KV rows: nothing owned twice, nothing lost, the arena never passed."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from engine.rollout.kv_rows import KvRows, Move, Place, Stripe

NUM_BLOCKS, BLOCK, SHORTEST = 6, 64, 16


class Rows(RuleBasedStateMachine):
    """Contents are modelled as a dict by (block, token place): a move must carry them along."""

    def __init__(self) -> None:
        super().__init__()
        self.rows = KvRows(NUM_BLOCKS, BLOCK, SHORTEST)
        self.lengths: dict[str, int] = {}  # of who holds a row
        self.kept: list[str] = []
        self.contents: dict[int, str] = {}  # first token place of a row: its owner
        self.count = 0

    def start(self, place: Place) -> int:
        return place.stripe.first_block * BLOCK + place.row * place.stripe.length

    def settle(self, owner: str, length: int, place: Place) -> None:
        assert place.stripe.length >= length
        self.lengths[owner] = length
        self.contents[self.start(place)] = owner

    @rule(length=st.integers(1, NUM_BLOCKS * BLOCK), keep=st.booleans())
    def take(self, length: int, keep: bool) -> None:
        self.count += 1
        owner = f"o{self.count}"
        free_before = self.rows.tokens_free
        place = (self.rows.keep if keep else self.rows.place)(owner, length)
        if place is None:
            assert not self.rows.holds(owner)
            assert self.rows.tokens_free == free_before
            return
        if keep:
            self.kept.append(owner)
        self.settle(owner, length, place)

    @precondition(lambda self: self.lengths)
    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        owner = data.draw(st.sampled_from(sorted(self.lengths)))
        hole = self.start(self.rows.place_of(owner))
        move = self.rows.remove(owner)
        del self.contents[hole], self.lengths[owner]
        self.kept = [kept for kept in self.kept if kept != owner]
        if move is not None:
            assert self.start(move.target) == hole
            self.contents[hole] = self.contents.pop(self.start(move.source))

    @precondition(lambda self: self.lengths)
    @rule()
    def clear(self) -> None:
        if self.count % 7 == 0:
            self.rows.clear()
            self.lengths, self.kept, self.contents = {}, [], {}

    @invariant()
    def every_owner_has_its_own_contents(self) -> None:
        for owner in self.lengths:
            assert self.contents[self.start(self.rows.place_of(owner))] == owner
        assert len(self.contents) == len(self.lengths)

    @invariant()
    def stripes_lie_apart_and_within_the_arena(self) -> None:
        used: set[int] = set()
        for stripe in self.rows.stripes:
            blocks = set(range(stripe.first_block, stripe.first_block + stripe.num_blocks))
            assert not blocks & used and max(blocks) < NUM_BLOCKS
            assert stripe.num_rows * stripe.length <= stripe.num_blocks * BLOCK
            assert 0 < len(stripe.owners) <= stripe.num_rows
            used |= blocks
        assert self.rows.tokens_used == len(used) * BLOCK <= NUM_BLOCKS * BLOCK

    @invariant()
    def at_most_one_stripe_of_a_kind_has_free_rows(self) -> None:
        kinds = [(s.length, s.is_kept) for s in self.rows.stripes if not s.is_full]
        assert len(kinds) == len(set(kinds))

    @invariant()
    def the_oldest_kept_is_known(self) -> None:
        assert self.rows.num_kept == len(self.kept)
        assert self.rows.oldest_kept() == (self.kept[0] if self.kept else None)


TestRows = Rows.TestCase
TestRows.settings = settings(max_examples=60, stateful_step_count=60, deadline=None)


def test_rows_are_as_long_as_the_next_class() -> None:
    rows = KvRows(4, 64, 16)
    assert [rows.length_class(n) for n in (1, 16, 17, 33, 64, 65, 200)] == [
        16, 16, 32, 64, 64, 128, 256,
    ]  # fmt: skip
    assert rows.place("longest", 256)
    rows.remove("longest")
    assert rows.place("too long", 257) is None


def test_a_hole_is_filled_from_the_end() -> None:
    rows = KvRows(2, 64, 16)
    places = [rows.place(name, 10) for name in "abcd"]
    stripe = places[0].stripe if places[0] else None
    assert isinstance(stripe, Stripe)
    assert rows.remove("b") == Move(Place(stripe, 3), Place(stripe, 1))
    assert stripe.owners == ["a", "d", "c"]
    assert rows.remove("c") is None
    assert stripe.owners == ["a", "d"]


def test_long_rows_take_adjacent_blocks_or_none() -> None:
    rows = KvRows(3, 64, 16)
    assert rows.place("a", 64) and rows.place("b", 64)
    rows.remove("a")
    assert rows.place("long", 128) is None  # two blocks are free, but apart
    rows.remove("b")
    place = rows.place("long", 128)
    assert place and place.stripe.num_blocks == 2


def test_a_short_sequence_takes_a_long_row_rather_than_none() -> None:
    rows = KvRows(1, 64, 16)
    assert rows.place("a", 32)
    place = rows.place("b", 5)
    assert place and place.stripe.length == 32
    assert rows.place("c", 5) is None


def test_odd_sizes_are_refused() -> None:
    with pytest.raises(ValueError, match="power of two"):
        KvRows(2, 48, 16)
