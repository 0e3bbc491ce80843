"""Which sequences are worked on, and what of each is computed next. No torch.

Sequences wait in order. One is admitted when there is a slot, its adapter is there, and a row for
its tokens; it is computed in chunks until only the draw is missing, and then a token a step. What
does not fit waits: if a running sequence needs a longer row and none is free, the one admitted last
is put back to the head of the line with the tokens it has, and computed again later. So the oldest
always gets on, and nothing fails for lack of room.

A prompt that another running sequence of the same adapter has computed is copied, not computed; so
is what was kept of a session's last turn.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Protocol

from ..types import AdapterRef, Generation
from .kv_rows import KeptTurn
from .sequences import Sequence, failed


class Rows(Protocol):
    """What the scheduler asks of the KV arena (KvArena says what each does)."""

    def place(self, owner: str, length: int) -> bool: ...
    def require(self, owner: str, length: int) -> bool: ...
    def remove(self, owner: str, may_hold_nan: bool = False) -> None: ...
    def share(self, owner: str, other: str, count: int) -> None: ...
    def keep(self, owner: str, session: str, turn: KeptTurn) -> None: ...
    def kept(self, session: str) -> KeptTurn | None: ...
    def restore(self, session: str, owner: str, count: int) -> None: ...
    def forget(self, session: str) -> None: ...


class Hold(Protocol):
    """An adapter that a sequence has asked for (AdapterHold)."""

    @property
    def status(self) -> str:
        """ "loading", "full" (no room for it now), "ready" or "failed"."""

    @property
    def digest(self) -> str: ...

    @property
    def error(self) -> str: ...


class Adapters(Protocol):
    """What the scheduler asks of the adapter cache."""

    def acquire(self, ref: AdapterRef) -> Hold:
        """One user more."""

    def release(self, hold: Any) -> None: ...


@dataclass(frozen=True)
class Batch:
    """What to compute in one step."""

    decoding: dict[str, Sequence]  # by id: one token each
    chunks: tuple[tuple[Sequence, int], ...]  # and so many tokens of these


@dataclass
class Scheduler:
    """Owns the sequences. The engine computes a Batch and says who has finished."""

    rows: Rows
    adapters: Adapters
    num_slots: int  # sequences that run at once
    chunk_tokens: int  # computed in a step at most beside decoding sequences
    prefill_tokens: int  # computed in a step at most when nothing is decoding
    waiting: deque[Sequence] = field(default_factory=deque)
    running: dict[str, Sequence] = field(default_factory=dict)  # in order of admission
    done: list[Generation] = field(default_factory=list)
    num_preemptions: int = 0
    _holds: dict[str, Hold] = field(default_factory=dict)  # by id; of who waits, too
    _computed: dict[bytes, dict[str, None]] = field(default_factory=dict)  # ids by prompt_key

    def schedule(self) -> Batch:
        """Make room, admit, and choose."""
        if self._make_room():
            self._admit()
        decoding = {s.request.id: s for s in self.running.values() if s.num_uncached == 1}
        budget = self.chunk_tokens if decoding else self.prefill_tokens
        chunks: list[tuple[Sequence, int]] = []
        for sequence in self.running.values():
            if sequence.num_uncached > 1 and budget:
                count = min(sequence.num_uncached, budget)
                chunks.append((sequence, count))
                budget -= count
        return Batch(decoding, tuple(chunks))

    def finish(self, sequence: Sequence, reason: str) -> None:
        """A running sequence ends."""
        request = sequence.request
        is_whole = reason in ("stop", "length")
        if is_whole and request.session:
            computed = tuple(sequence.all_ids[: sequence.num_cached])
            turn = KeptTurn(request.adapter.name, computed)
            self.rows.keep(request.id, request.session, turn)
        self._leave(sequence, may_hold_nan=not is_whole)
        self._release(sequence)
        self.done.append(sequence.generation(reason))

    def cancel(self, ids: Iterable[str]) -> None:
        unwanted = set(ids)
        for sequence in [s for s in self.waiting if s.request.id in unwanted]:
            self.waiting.remove(sequence)
            self._release(sequence)
            self.done.append(sequence.generation("cancelled"))
        for name in unwanted & self.running.keys():
            self.finish(self.running[name], "cancelled")

    def clear(self) -> None:
        """Forget every sequence; rows and adapters are for the caller to clear."""
        self.waiting.clear()
        self.running.clear()
        self.done.clear()
        self._holds.clear()
        self._computed.clear()

    def _make_room(self) -> bool:
        """A row long enough for every sequence that decodes; False if some had to be put back."""
        before = self.num_preemptions
        for sequence in list(self.running.values()):
            name = sequence.request.id
            while name in self.running and not self.rows.require(name, sequence.num_tokens):
                self._preempt(next(reversed(self.running.values())))
        return self.num_preemptions == before

    def _preempt(self, sequence: Sequence) -> None:
        self._leave(sequence, may_hold_nan=True)
        sequence.preempt()
        self.waiting.appendleft(sequence)
        self.num_preemptions += 1

    def _leave(self, sequence: Sequence, may_hold_nan: bool) -> None:
        request = sequence.request
        del self.running[request.id]
        same = self._computed[sequence.prompt_key]
        del same[request.id]
        if not same:
            del self._computed[sequence.prompt_key]
        self.rows.remove(request.id, may_hold_nan)

    def _admit(self) -> None:
        """Those whose adapter or prompt is on its way are passed; want of a row stops the line.

        Where an adapter finds no room, those behind it that hold theirs already still go (it may be
        one of these that has to make room), but no further ones are asked for.
        """
        passed: list[Sequence] = []
        may_ask = True
        while self.waiting and len(self.running) < self.num_slots:
            sequence = self.waiting.popleft()
            hold = self._hold(sequence, may_ask)
            may_ask = may_ask and not (hold and hold.status == "full")
            if hold and hold.status == "failed":
                self._release(sequence)
                self.done.append(failed(sequence.request, hold.error))
            elif not hold or hold.status != "ready" or self._is_being_computed(sequence):
                passed.append(sequence)
            elif self.rows.place(sequence.request.id, sequence.num_tokens):
                sequence.digest = hold.digest
                self._enter(sequence)
            else:
                passed.append(sequence)
                break
        self.waiting.extendleft(reversed(passed))

    def _hold(self, sequence: Sequence, may_ask: bool) -> Hold | None:
        name = sequence.request.id
        if may_ask and name not in self._holds:
            self._holds[name] = self.adapters.acquire(sequence.request.adapter)
        return self._holds.get(name)

    def _release(self, sequence: Sequence) -> None:
        hold = self._holds.pop(sequence.request.id, None)
        if hold is not None:
            self.adapters.release(hold)

    def _is_being_computed(self, sequence: Sequence) -> bool:
        """Whether its prompt will soon be there to copy."""
        source = self._source(sequence)
        return source is not None and source.num_cached < len(sequence.request.ids) - 1

    def _source(self, sequence: Sequence) -> Sequence | None:
        """A running sequence with the same prompt."""
        if sequence.request.needs_prompt_logprobs or len(sequence.request.ids) < 2:
            return None
        same = self._computed.get(sequence.prompt_key)
        return self.running[next(iter(same))] if same else None

    def _enter(self, sequence: Sequence) -> None:
        """It has a row; fill it with what is known already."""
        request = sequence.request
        source = self._source(sequence)
        kept = self.rows.kept(request.session) if request.session else None
        if kept and self._is_beginning(kept, sequence):
            sequence.num_cached = min(len(kept.ids), sequence.num_tokens - 1)
            self.rows.restore(request.session, request.id, sequence.num_cached)
        elif source:
            sequence.num_cached = len(request.ids) - 1
            self.rows.share(source.request.id, request.id, sequence.num_cached)
        if request.session:
            self.rows.forget(request.session)
        self.running[request.id] = sequence
        self._computed.setdefault(sequence.prompt_key, {})[request.id] = None

    def _is_beginning(self, kept: KeptTurn, sequence: Sequence) -> bool:
        """Whether what is kept is of this adapter and these tokens."""
        request = sequence.request
        return (
            kept.adapter == request.adapter.name
            and not request.needs_prompt_logprobs
            and tuple(sequence.all_ids[: len(kept.ids)]) == kept.ids
        )
