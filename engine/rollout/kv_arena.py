"""Keys and values of all sequences: one arena of fixed size, made once, its pages touched on use.

A row holds the keys and values of one sequence: (kv heads, length, 2, head dim). A token's key and
value lie side by side, so that what is used of a row is in half as many pages. Who has which row is
the business of KvRows. Invariant: what lies in a row beyond its owner's tokens is finite. (A masked
position still meets a weight of 0 in the product, and 0 times a stranger's NaN would be NaN; so a
row whose owner may have left such numbers is cleared.)
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from ..native.pages import untouched
from .kv_rows import KeptTurn, KvRows, Move, Place

BLOCK_TOKENS = 1024  # eight short rows; a longer row takes several adjacent blocks
SHORTEST_ROW = 128


@dataclass(frozen=True)
class Run:
    """Adjacent rows of one length, of sequences that are being generated."""

    first: int  # number of the first row's first vector in a layer
    length: int  # tokens of a row
    owners: tuple[str, ...]


class KvArena:
    """Rows by sequence id, kept rows by session."""

    def __init__(
        self,
        num_layers: int,
        num_kv_heads: int,
        head_dim: int,
        dtype: torch.dtype,
        device: torch.device,
        num_bytes: int,
    ) -> None:
        """num_bytes: never more than this is used; at least `bytes_for` the longest sequence."""
        self._heads = 2 * num_kv_heads
        self.token_bytes = num_layers * self._heads * head_dim * dtype.itemsize
        num_blocks = num_bytes // (BLOCK_TOKENS * self.token_bytes)
        self._rows = KvRows(num_blocks, BLOCK_TOKENS, SHORTEST_ROW)
        shape = (num_layers, num_blocks * BLOCK_TOKENS * self._heads, head_dim)
        # Small pages: they cost attention nothing, and padding of rows then takes no memory.
        self._vectors = untouched(math.prod(shape), dtype, device).view(shape)
        numbers = torch.arange(self._heads, device=device)
        self._head_numbers, self._is_value = numbers % num_kv_heads, numbers // num_kv_heads
        self._kept: dict[str, KeptTurn] = {}
        self._tokens: dict[str, int] = {}  # that each owner has asked room for

    @staticmethod
    def bytes_for(
        length: int, num_layers: int, num_kv_heads: int, head_dim: int, dtype: torch.dtype
    ) -> int:
        """Of the smallest arena that holds one sequence of `length` tokens."""
        row = KvRows(1, BLOCK_TOKENS, SHORTEST_ROW).length_class(length)
        tokens = max(row, BLOCK_TOKENS)
        return tokens * num_layers * 2 * num_kv_heads * head_dim * dtype.itemsize

    @property
    def num_bytes(self) -> int:
        return self._vectors.numel() * self._vectors.element_size()

    @property
    def bytes_used(self) -> int:
        """Of the blocks that hold something, kept sessions included."""
        return self._rows.tokens_used * self.token_bytes

    @property
    def tokens_free(self) -> int:
        return self._rows.tokens_free

    @property
    def num_kept(self) -> int:
        return self._rows.num_kept

    # Rows

    def place(self, owner: str, length: int) -> bool:
        """A row of at least `length` tokens, at the cost of kept ones; False: no room now."""
        while self._rows.place(owner, length) is None:
            if not self._evict():
                return False
        self._tokens[owner] = length
        return True

    def require(self, owner: str, length: int) -> bool:
        """Let the owner's row hold `length` tokens, if need be in another place; False: no room."""
        if self._rows.place_of(owner).stripe.length >= length:
            self._tokens[owner] = length
            return True
        longer = f"longer row of {owner}"
        if not self.place(longer, length):
            return False
        old = self._rows.place_of(owner)
        self._move(old, self._rows.place_of(longer), self._tokens[owner])
        self._remove(owner)
        self._rows.rename(longer, owner)
        self._tokens[owner] = self._tokens.pop(longer)
        return True

    def remove(self, owner: str, may_hold_nan: bool = False) -> None:
        if may_hold_nan:
            place = self._rows.place_of(owner)
            self._row(place)[:, :, : self._tokens[owner]] = 0
        self._remove(owner)

    def share(self, owner: str, other: str, count: int) -> None:
        """Copy the first `count` tokens of one sequence's row to another's."""
        self._copy(self._rows.place_of(owner), self._rows.place_of(other), count)

    def clear(self) -> None:
        """Nobody holds anything, and every number is finite."""
        for run in self._rows.stripes:
            start = run.first_block * BLOCK_TOKENS * self._heads
            self._vectors[:, start : start + run.num_blocks * BLOCK_TOKENS * self._heads] = 0
        self._rows.clear()
        self._kept.clear()
        self._tokens.clear()

    # Sessions

    def keep(self, owner: str, session: str, turn: KeptTurn) -> None:
        """Keep a copy of the row for the session's next turn, if there is room beside the others;
        the row stays its owner's."""
        self.forget(session)
        name = _kept_name(session)
        while (place := self._rows.keep(name, len(turn.ids))) is None:
            if not self._evict():
                return
        self._copy(self._rows.place_of(owner), place, len(turn.ids))
        self._kept[session] = turn
        self._tokens[name] = len(turn.ids)

    def kept(self, session: str) -> KeptTurn | None:
        return self._kept.get(session)

    def restore(self, session: str, owner: str, count: int) -> None:
        """Copy the first `count` tokens that are kept to the owner's row."""
        self._copy(self._rows.place_of(_kept_name(session)), self._rows.place_of(owner), count)

    def forget(self, session: str) -> None:
        if self._kept.pop(session, None):
            self._remove(_kept_name(session))

    # What a forward pass reads and writes

    def runs(self) -> list[Run]:
        """All rows of sequences, in the order in which they lie here."""
        runs: list[Run] = []
        for stripe in self._rows.stripes:
            if stripe.is_kept:
                continue
            first = stripe.first_block * BLOCK_TOKENS * self._heads
            owners = tuple(stripe.owners)
            last = runs[-1] if runs else None
            if (
                last
                and last.length == stripe.length
                and last.first + len(last.owners) * last.length * self._heads == first
            ):
                runs[-1] = Run(last.first, last.length, last.owners + owners)
            else:
                runs.append(Run(first, stripe.length, owners))
        return runs

    def row_of(self, owner: str) -> tuple[int, int]:
        """(number of its first vector in a layer, tokens that it has room for)."""
        place = self._rows.place_of(owner)
        return self._start(place), place.stripe.length

    def addresses(self, firsts: Tensor, lengths: Tensor, positions: Tensor) -> Tensor:
        """Where the vectors of N tokens belong; int64 (N · 2 · kv heads), for `write`.

        firsts, lengths: of each token's row, as from `row_of`; positions: of the token in it.
        """
        starts = (firsts + 2 * positions)[:, None] + self._is_value
        return (starts + 2 * lengths[:, None] * self._head_numbers).flatten()

    def write(self, layer: int, addresses: Tensor, kv: Tensor) -> None:
        """kv: (N, 2 · kv heads, head dim)."""
        self._vectors[layer].index_copy_(0, addresses, kv.flatten(0, 1))

    def layer(self, layer: int) -> Tensor:
        """All vectors of a layer: (vectors, head dim), a view."""
        return self._vectors[layer]

    def read(self, layer: int, first: int, count: int, length: int) -> tuple[Tensor, Tensor]:
        """Keys and values of `count` adjacent rows: views, each (count, kv heads, length, D)."""
        end = first + count * self._heads * length
        rows = self._vectors[layer, first:end].view(count, self._heads // 2, length, 2, -1)
        keys, values = rows.unbind(-2)
        return keys, values

    # Moving

    def _evict(self) -> bool:
        """Give up the oldest of what is kept."""
        name = self._rows.oldest_kept()
        if name is None:
            return False
        self.forget(_session(name))
        return True

    def _remove(self, owner: str) -> None:
        del self._tokens[owner]
        move = self._rows.remove(owner)
        if move:
            self._fill(move)

    def _fill(self, move: Move) -> None:
        """Only what its owner has asked for: padding would take memory once it is written."""
        owner = move.target.stripe.owners[move.target.row]
        self._move(move.source, move.target, self._tokens[owner])

    def _move(self, source: Place, target: Place, count: int) -> None:
        """Copy, and clear what is left behind: its owner may turn out to hold NaN."""
        self._copy(source, target, count)
        self._row(source)[:, :, :count] = 0

    def _copy(self, source: Place, target: Place, count: int) -> None:
        self._row(target)[:, :, :count] = self._row(source)[:, :, :count]

    def _row(self, place: Place) -> Tensor:
        """(L, kv heads, length, 2, D), a view."""
        start, length = self._start(place), place.stripe.length
        part = self._vectors[:, start : start + self._heads * length]
        return part.view(len(self._vectors), self._heads // 2, length, 2, -1)

    def _start(self, place: Place) -> int:
        tokens = place.stripe.first_block * BLOCK_TOKENS + place.row * place.stripe.length
        return tokens * self._heads


def _kept_name(session: str) -> str:
    return f"kept:{session}"


def _session(name: str) -> str:
    return name.removeprefix("kept:")
