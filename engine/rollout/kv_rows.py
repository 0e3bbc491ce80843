"""Who holds which rows of the KV arena: bookkeeping only, no tensors.

The arena is `num_blocks` blocks of `block_tokens` token places each. A *stripe* is one block, or
several adjacent ones where a row needs more than a block, cut into rows of one length (a power of
two times `min_length`). Rows of sequences that are being generated and rows that are kept for a
later turn lie in different stripes, and the rows of a stripe are filled from the first on, so that
attention reads a stripe as one dense tensor. Of a kind of stripe at most one has free rows.

Invariants: a row has one owner, an owner one row; stripes do not overlap; rows 0 … n-1 of a stripe
are the taken ones; a stripe without rows is given back.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field


@dataclass(eq=False)
class Stripe:
    """Adjacent blocks cut into rows of one length."""

    first_block: int
    num_blocks: int
    length: int  # tokens of a row
    num_rows: int  # rows that it has room for
    is_kept: bool
    owners: list[str] = field(default_factory=list)  # of rows 0 … n-1

    @property
    def is_full(self) -> bool:
        return len(self.owners) == self.num_rows


@dataclass(frozen=True)
class Place:
    """One row of a stripe."""

    stripe: Stripe
    row: int


@dataclass(frozen=True)
class Move:
    """The row at `source` now belongs at `target`: its contents must be copied."""

    source: Place
    target: Place


@dataclass(frozen=True)
class KeptTurn:
    """What is kept of a session: the KV of these tokens under this adapter."""

    adapter: str
    ids: tuple[int, ...]


class KvRows:
    """Owners are names: a sequence's, or a session's for what is kept."""

    def __init__(self, num_blocks: int, block_tokens: int, min_length: int) -> None:
        """block_tokens and min_length: tokens; block_tokens is min_length times a power of two."""
        ratio = block_tokens // min_length
        if block_tokens != ratio * min_length or ratio < 1 or ratio & (ratio - 1):
            raise ValueError("block_tokens must be min_length times a power of two")
        self.num_blocks, self.block_tokens, self.min_length = num_blocks, block_tokens, min_length
        self._free = set(range(num_blocks))
        self._stripes: list[Stripe] = []  # by first block
        self._stripe_of: dict[str, Stripe] = {}
        self._kept: OrderedDict[str, None] = OrderedDict()  # owners of kept rows, oldest first

    @property
    def stripes(self) -> list[Stripe]:
        """In the order in which they lie in the arena."""
        return list(self._stripes)

    @property
    def num_kept(self) -> int:
        return len(self._kept)

    @property
    def tokens_used(self) -> int:
        """Token places of all stripes."""
        return self.block_tokens * (self.num_blocks - len(self._free))

    @property
    def tokens_free(self) -> int:
        """Token places that sequences could still get, if what is kept were given up."""
        taken = sum(s.length * len(s.owners) for s in self._stripes if not s.is_kept)
        return self.block_tokens * self.num_blocks - taken

    def length_class(self, length: int) -> int:
        """Tokens of the row that `length` tokens get."""
        multiple = -(-length // self.min_length)
        return self.min_length << (multiple - 1).bit_length()

    def holds(self, owner: str) -> bool:
        return owner in self._stripe_of

    def place_of(self, owner: str) -> Place:
        """Raises: KeyError if it has none."""
        stripe = self._stripe_of[owner]
        return Place(stripe, stripe.owners.index(owner))

    def place(self, owner: str, length: int) -> Place | None:
        """A row of at least `length` tokens for a sequence that holds none; None: no room now."""
        assert owner not in self._stripe_of, f"{owner} holds a row already"
        wanted = self.length_class(length)
        stripe = self._open_stripe(wanted, is_kept=False) or self._larger_stripe(wanted)
        return None if stripe is None else self._take(stripe, owner)

    def keep(self, owner: str, length: int) -> Place | None:
        """A row of at least `length` tokens for what is kept; None: no room now."""
        assert owner not in self._stripe_of, f"{owner} holds a row already"
        stripe = self._open_stripe(self.length_class(length), is_kept=True)
        if stripe is None:
            return None
        self._kept[owner] = None
        return self._take(stripe, owner)

    def remove(self, owner: str) -> Move | None:
        """Give a row up; the move, if any, is of the row that fills the hole."""
        place = self.place_of(owner)
        stripe = place.stripe
        del self._stripe_of[owner]
        self._kept.pop(owner, None)
        donor = self._emptiest_like(stripe)
        source = Place(donor, len(donor.owners) - 1)
        mover = donor.owners.pop()
        if not donor.owners:
            self._give_back(donor)
        if mover == owner:
            return None
        stripe.owners[place.row] = mover
        self._stripe_of[mover] = stripe
        return Move(source, place)

    def rename(self, owner: str, new_name: str) -> None:
        """The row of `owner`, which is no kept one, belongs to `new_name` from now on."""
        assert owner not in self._kept and new_name not in self._stripe_of
        place = self.place_of(owner)
        place.stripe.owners[place.row] = new_name
        self._stripe_of[new_name] = self._stripe_of.pop(owner)

    def oldest_kept(self) -> str | None:
        return next(iter(self._kept), None)

    def clear(self) -> None:
        """Everything is free again."""
        self._free = set(range(self.num_blocks))
        self._stripes.clear()
        self._stripe_of.clear()
        self._kept.clear()

    def _take(self, stripe: Stripe, owner: str) -> Place:
        stripe.owners.append(owner)
        self._stripe_of[owner] = stripe
        return Place(stripe, len(stripe.owners) - 1)

    def _emptiest_like(self, stripe: Stripe) -> Stripe:
        """Of the stripes of this kind the one with free rows, or any if all are full."""
        same = (
            s for s in self._stripes if (s.length, s.is_kept) == (stripe.length, stripe.is_kept)
        )
        return min(same, key=lambda s: len(s.owners))

    def _open_stripe(self, length: int, is_kept: bool) -> Stripe | None:
        """A stripe of this kind with a free row: the one there is, or a new one."""
        for stripe in self._stripes:
            if (stripe.length, stripe.is_kept) == (length, is_kept) and not stripe.is_full:
                return stripe
        first = self._find_blocks(self._blocks_for(length))
        return None if first is None else self._cut(first, length, is_kept)

    def _larger_stripe(self, length: int) -> Stripe | None:
        """Better a row that is too long than none."""
        open_ones = [
            s for s in self._stripes if not s.is_kept and not s.is_full and s.length >= length
        ]
        return min(open_ones, key=lambda s: s.length, default=None)

    def _blocks_for(self, length: int) -> int:
        return -(-length // self.block_tokens)

    def _find_blocks(self, count: int) -> int | None:
        """The first of `count` adjacent free blocks."""
        run = 0
        for block in range(self.num_blocks):
            run = run + 1 if block in self._free else 0
            if run == count:
                return block - count + 1
        return None

    def _cut(self, first: int, length: int, is_kept: bool) -> Stripe:
        count = self._blocks_for(length)
        stripe = Stripe(first, count, length, count * self.block_tokens // length, is_kept)
        self._free -= set(range(first, first + count))
        self._stripes.append(stripe)
        self._stripes.sort(key=lambda s: s.first_block)
        return stripe

    def _give_back(self, stripe: Stripe) -> None:
        self._free |= set(range(stripe.first_block, stripe.first_block + stripe.num_blocks))
        self._stripes.remove(stripe)
