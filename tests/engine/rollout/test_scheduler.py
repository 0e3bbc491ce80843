"""The scheduler over the real bookkeeping of rows, without a model: what waits gets its turn, what
is promised fits, nothing is lost."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from engine.rollout.kv_arena import BLOCK_TOKENS, KvArena
from engine.rollout.scheduler import Batch, Scheduler
from engine.rollout.sequences import Sequence
from engine.types import AdapterRef, GenerationRequest, SamplingParams

NUM_BLOCKS, NUM_SLOTS, CHUNK, PREFILL = 3, 6, 100, 400
LONGEST = NUM_BLOCKS * BLOCK_TOKENS


@dataclass(eq=False)
class Hold:
    name: str
    status: str = "loading"
    digest: str = "d"
    error: str = ""


@dataclass
class Adapters:
    """Stands in for the cache: an adapter is there once somebody says so."""

    statuses: dict[str, str] = field(default_factory=dict)
    holds: list[Hold] = field(default_factory=list)

    def acquire(self, ref: AdapterRef) -> Hold:
        hold = Hold(ref.task, self.statuses.get(ref.task, "loading"), error="unreadable")
        self.holds.append(hold)
        return hold

    def release(self, hold: Hold) -> None:
        self.holds.remove(hold)

    def settle(self, name: str, status: str) -> None:
        self.statuses[name] = status
        for hold in self.holds:
            if hold.name == name:
                hold.status = status


def make(num_blocks: int = NUM_BLOCKS) -> tuple[Scheduler, KvArena, Adapters]:
    """One layer, one head, one number a head: 16 bytes a token."""
    token_bytes = 2 * 2 * 4
    arena = KvArena(
        1, 1, 2, torch.float32, torch.device("cpu"), num_blocks * BLOCK_TOKENS * token_bytes
    )
    adapters = Adapters()
    return Scheduler(arena, adapters, NUM_SLOTS, CHUNK, PREFILL), arena, adapters


def sequence(
    name: str, length: int = 10, new: int = 5, adapter: str = "a", session: str = "", first: int = 1
) -> Sequence:
    ids = (first, *range(2, length + 1))
    ref = AdapterRef(adapter, 0, "d" * 12, "nowhere")
    return Sequence(
        GenerationRequest(name, ref, ids, SamplingParams(new), seed=0, session=session), ""
    )


def compute(scheduler: Scheduler, batch: Batch) -> None:
    """What an engine would do with it: every drawn token is a 7."""
    parts = [(s, 1) for s in batch.decoding.values()] + list(batch.chunks)
    for one, count in parts:
        one.num_cached += count
        if not one.num_uncached and (reason := one.append(7, -1.0)):
            scheduler.finish(one, reason)


def drain(scheduler: Scheduler, limit: int = 2000) -> list[str]:
    """Names in the order in which they ended."""
    for _ in range(limit):
        if not scheduler.waiting and not scheduler.running:
            break
        compute(scheduler, scheduler.schedule())
    return [generation.id for generation in scheduler.done]


def ready(*names: str) -> tuple[Scheduler, KvArena, Adapters]:
    scheduler, arena, adapters = make()
    for name in names or ("a",):
        adapters.settle(name, "ready")
    return scheduler, arena, adapters


def test_a_long_prompt_is_computed_in_chunks_beside_those_who_decode() -> None:
    scheduler, _, _ = ready()
    scheduler.waiting.append(sequence("short", 3, new=50))
    compute(scheduler, scheduler.schedule())
    scheduler.waiting.append(sequence("long", 450))
    sizes = []
    for _ in range(5):
        batch = scheduler.schedule()
        assert "short" in batch.decoding
        sizes += [count for _, count in batch.chunks]
        compute(scheduler, batch)
    assert sizes == [100, 100, 100, 100, 50]


def test_a_prompt_alone_is_computed_in_larger_chunks() -> None:
    scheduler, _, _ = ready()
    scheduler.waiting.append(sequence("long", 900))
    batches = []
    for _ in range(3):
        batches.append(scheduler.schedule())
        compute(scheduler, batches[-1])
    assert [count for batch in batches for _, count in batch.chunks] == [400, 400, 100]


def test_a_group_waits_for_its_first_and_then_computes_one_token_each() -> None:
    scheduler, _, _ = ready()
    scheduler.waiting.extend(sequence(f"s{i}", 40) for i in range(4))
    first = scheduler.schedule()
    assert [(s.request.id, count) for s, count in first.chunks] == [("s0", 40)]
    assert not first.decoding and len(scheduler.waiting) == 3
    compute(scheduler, first)
    second = scheduler.schedule()
    assert set(second.decoding) == {"s0", "s1", "s2", "s3"} and not second.chunks
    assert second.decoding["s3"].num_cached == 39


def test_prompts_are_shared_within_an_adapter_only() -> None:
    scheduler, _, _ = ready("a", "b")
    scheduler.waiting.extend([sequence("x", 40), sequence("y", 40, adapter="b")])
    assert [s.request.id for s, _ in scheduler.schedule().chunks] == ["x", "y"]


def test_the_next_turn_of_a_session_computes_only_what_is_new() -> None:
    scheduler, arena, _ = ready()
    scheduler.waiting.append(sequence("t1", 30, new=4, session="s"))
    drain(scheduler)
    kept = arena.kept("s")
    assert kept and kept.ids == (*range(1, 31), 7, 7, 7)
    ref = AdapterRef("a", 0, "d" * 12, "nowhere")
    ids = (*range(1, 31), 7, 7, 7, 7, 50, 51)
    scheduler.waiting.append(
        Sequence(GenerationRequest("t2", ref, ids, SamplingParams(4), 0, session="s"), "")
    )
    assert [count for _, count in scheduler.schedule().chunks] == [3]
    assert arena.kept("s") is None


def test_what_is_kept_of_other_tokens_or_another_adapter_is_not_used() -> None:
    for change in ({"first": 99}, {"adapter": "b"}):
        scheduler, _, _ = ready("a", "b")
        scheduler.waiting.append(sequence("t1", 30, new=4, session="s"))
        drain(scheduler)
        scheduler.waiting.append(sequence("t2", 40, session="s", **change))  # type: ignore[arg-type]
        assert [count for _, count in scheduler.schedule().chunks] == [40]


def test_the_youngest_goes_back_to_wait_when_rows_run_out_and_all_still_end() -> None:
    scheduler, arena, _ = ready()
    scheduler.waiting.extend(sequence(f"s{i}", 900 + i, new=600, first=1000 + i) for i in range(3))
    ended = drain(scheduler)
    assert sorted(ended) == ["s0", "s1", "s2"] and ended[0] == "s0"
    assert scheduler.num_preemptions > 0
    assert all(len(g.ids) == 600 for g in scheduler.done)
    assert arena.bytes_used == 0


def test_kept_sessions_make_way_for_sequences() -> None:
    scheduler, arena, _ = ready()
    for i in range(3):
        scheduler.waiting.append(sequence(f"s{i}", 400, new=2, session=f"k{i}", first=50 + i))
        drain(scheduler)
    assert arena.num_kept == 3
    scheduler.waiting.append(sequence("big", 2000, new=2))
    assert "big" in drain(scheduler)
    assert arena.kept("k0") is None and arena.num_kept < 3


def test_one_whose_adapter_loads_is_passed_and_one_whose_adapter_fails_ends() -> None:
    scheduler, _, adapters = ready("b")
    scheduler.waiting.extend([sequence("slow"), sequence("quick", adapter="b")])
    assert scheduler.schedule().chunks[0][0].request.id == "quick"
    adapters.settle("a", "failed")
    assert drain(scheduler) == ["slow", "quick"]
    assert scheduler.done[0].error == "unreadable"
    assert adapters.holds == []


def test_an_adapter_without_room_lets_nobody_new_pass_but_those_who_hold_theirs() -> None:
    scheduler, _, adapters = ready("b", "c")
    scheduler.waiting.extend([sequence("first"), sequence("holder", adapter="b", length=20)])
    scheduler.num_slots = 0
    scheduler.schedule()
    scheduler.num_slots = 1
    scheduler.schedule()  # "first" is loading, "holder" runs
    adapters.settle("a", "full")
    scheduler.num_slots = 6
    scheduler.waiting.append(sequence("new", adapter="c"))
    scheduler.schedule()
    assert "new" not in scheduler.running
    assert "c" not in {hold.name for hold in adapters.holds}
    adapters.settle("a", "ready")
    scheduler.schedule()
    assert {"first", "new"} <= scheduler.running.keys() | {g.id for g in scheduler.done}


class Life(RuleBasedStateMachine):
    """Arrivals, steps, cancellations, adapters that come, fail and find no room, in any order."""

    @initialize()
    def begin(self) -> None:
        self.scheduler, self.arena, self.adapters = make()
        self.submitted: dict[str, int] = {}
        self.sessions = 0

    @rule(
        length=st.integers(1, 1500),
        new=st.integers(1, 60),
        adapter=st.sampled_from("abc"),
        count=st.integers(1, 4),
        keep=st.booleans(),
    )
    def arrive(self, length: int, new: int, adapter: str, count: int, keep: bool) -> None:
        for _ in range(count):
            name = f"s{len(self.submitted)}"
            self.submitted[name] = new
            session = f"k{len(self.submitted)}" if keep else ""
            self.scheduler.waiting.append(sequence(name, length, new, adapter, session))

    @rule(name=st.sampled_from("abc"), status=st.sampled_from(["ready", "ready", "full"]))
    def adapter_changes(self, name: str, status: str) -> None:
        if self.adapters.statuses.get(name) != "ready":
            self.adapters.settle(name, status)

    @rule(steps=st.integers(1, 30))
    def step(self, steps: int) -> None:
        for _ in range(steps):
            batch = self.scheduler.schedule()
            rows = sum(count for _, count in batch.chunks)
            assert rows <= (CHUNK if batch.decoding else PREFILL)
            for one in (*batch.decoding.values(), *(s for s, _ in batch.chunks)):
                assert self.arena.row_of(one.request.id)[1] >= one.num_tokens
            compute(self.scheduler, batch)

    @precondition(lambda self: self.submitted)
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        self.scheduler.cancel([data.draw(st.sampled_from(sorted(self.submitted)))])

    @invariant()
    def nobody_is_lost_or_doubled(self) -> None:
        if not hasattr(self, "scheduler"):
            return
        waiting = [s.request.id for s in self.scheduler.waiting]
        done = [g.id for g in self.scheduler.done]
        everybody = [*waiting, *self.scheduler.running, *done]
        assert sorted(everybody) == sorted(self.submitted)
        assert len(self.scheduler.running) <= NUM_SLOTS
        assert self.arena.bytes_used <= self.arena.num_bytes

    def teardown(self) -> None:
        """Once all adapters are there, everybody ends, and every row and hold is given back."""
        for name in "abc":
            self.adapters.settle(name, "ready")
        drain(self.scheduler, 5000)
        assert not self.scheduler.waiting and not self.scheduler.running
        assert self.adapters.holds == []
        for generation in self.scheduler.done:
            if generation.finish_reason == "length":
                assert len(generation.ids) == self.submitted[generation.id]
        for number in range(len(self.submitted) + 1):
            self.arena.forget(f"k{number}")
        assert self.arena.bytes_used == 0


TestLife = Life.TestCase
TestLife.settings = settings(max_examples=40, stateful_step_count=25, deadline=None)
