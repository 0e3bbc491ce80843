"""The event-driven engine against one that does every decode step by itself."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf
from random import Random

import pytest

from engine.simulation.performance.cost_models import EngineCost
from engine.simulation.performance.lockstep import LockstepEngine, Sequence

COST = EngineCost(step_s=0.01, sequence_s=0.001, slots=1000)


def sequence(tokens: int, context: int = 0, owner: str = "alice", adapter: str = "a") -> Sequence:
    return Sequence(label=None, tokens=tokens, adapter=adapter, owner=owner, context=context)


def run_to_end(engine: LockstepEngine, arrivals: list[tuple[float, Sequence]]) -> dict[int, float]:
    """When each sequence ended, by its place among the arrivals."""
    ends: dict[int, float] = {}
    places = {id(one): place for place, (_, one) in enumerate(arrivals)}
    coming = sorted(arrivals, key=lambda arrival: arrival[0])
    while len(ends) < len(arrivals):
        event_at = engine.next_event_at()
        if coming and coming[0][0] <= event_at:
            at, one = coming.pop(0)
            engine.advance(at)
            engine.add(one)
            continue
        assert event_at < inf
        engine.advance(event_at)
        ends.update((places[id(one)], engine.now) for one in engine.settle())
    return ends


@dataclass
class Naive:
    """One decode step after the other; what arrives during one takes part in the next."""

    cost: EngineCost
    now: float = 0.0
    left: dict[int, int] = field(default_factory=dict)

    def run(self, arrivals: list[tuple[float, int]]) -> dict[int, float]:
        ends: dict[int, float] = {}
        waiting = sorted((at, place, tokens) for place, (at, tokens) in enumerate(arrivals))
        while waiting or self.left:
            if not self.left:
                self.now = max(self.now, waiting[0][0])
            while waiting and waiting[0][0] <= self.now:
                _, place, tokens = waiting.pop(0)
                self.left[place] = tokens
            self.now += self.cost.step_s + self.cost.sequence_s * len(self.left)
            self.left = {place: tokens - 1 for place, tokens in self.left.items()}
            for place in [place for place, tokens in self.left.items() if not tokens]:
                del self.left[place]
                ends[place] = self.now
        return ends


@pytest.mark.parametrize("seed", range(5))
def test_sequences_end_when_single_decode_steps_say_so(seed: int) -> None:
    rng = Random(seed)
    arrivals = [(rng.uniform(0, 5), rng.randint(5, 400)) for _ in range(60)]
    engine = LockstepEngine(COST, now=0.0)
    found = run_to_end(engine, [(at, sequence(tokens)) for at, tokens in arrivals])
    wanted = Naive(COST).run(arrivals)
    longest_step_s = COST.decode_s(60)
    # Each arrival and each end may cost the continuous one a part of a step.
    assert max(abs(found[place] - wanted[place]) for place in wanted) < 10 * longest_step_s
    assert found.keys() == wanted.keys()
    assert max(found.values()) == pytest.approx(max(wanted.values()), rel=0.01)
    assert engine.tokens == pytest.approx(sum(tokens for _, tokens in arrivals))


def test_two_sequences_share_the_decode_steps_exactly() -> None:
    ends = run_to_end(LockstepEngine(COST, now=0.0), [(0.0, sequence(100)), (0.0, sequence(300))])
    assert ends == pytest.approx({0: 100 * 0.012, 1: 100 * 0.012 + 200 * 0.011})


def test_device_seconds_go_to_those_at_work_in_equal_parts() -> None:
    engine = LockstepEngine(COST, now=0.0)
    alice = [(0.0, sequence(100)) for _ in range(3)]
    run_to_end(engine, [*alice, (0.0, sequence(200, owner="bob"))])
    together_s, alone_s = 100 * 0.014, 100 * 0.011
    assert engine.owner_s == pytest.approx(
        {"alice": together_s * 3 / 4, "bob": together_s / 4 + alone_s}
    )
    assert engine.busy_s == pytest.approx(together_s + alone_s)


def test_one_adapter_a_batch_pays_for_a_decode_step_of_each() -> None:
    arrivals = [(0.0, sequence(100, adapter=name)) for name in ("a", "b", "b")]
    ends = run_to_end(LockstepEngine(COST, now=0.0, is_multi_lora=False), arrivals)
    assert ends == pytest.approx(dict.fromkeys(range(3), 100 * (2 * 0.01 + 3 * 0.001)))


def test_more_than_the_slots_wait() -> None:
    cost = EngineCost(step_s=0.01, sequence_s=0.0, slots=2)
    ends = run_to_end(LockstepEngine(cost, now=0.0), [(0.0, sequence(100)) for _ in range(3)])
    assert ends == pytest.approx({0: 1.0, 1: 1.0, 2: 2.0})


def test_a_paused_engine_does_nothing() -> None:
    engine = LockstepEngine(COST, now=0.0)
    engine.add(sequence(100))
    engine.is_paused = True
    assert engine.next_event_at() == inf
    engine.advance(50.0)
    assert (engine.steps, engine.busy_s) == (0, 0)
    engine.is_paused = False
    assert engine.next_event_at() == pytest.approx(50 + 100 * 0.011)


def test_a_prompt_is_read_before_decoding_goes_on() -> None:
    cost = EngineCost(step_s=0.01, sequence_s=0.001, slots=10, prefill_s=0.002)
    engine = LockstepEngine(cost, now=0.0)
    one = sequence(100, context=500)
    one.unread = 500
    engine.add(one)
    assert engine.next_event_at() == pytest.approx(500 * 0.002 + 100 * 0.011)


def test_the_youngest_goes_back_when_kv_runs_out_and_is_computed_again() -> None:
    cost = EngineCost(step_s=0.01, sequence_s=0.0, slots=10, prefill_s=0.001, kv_tokens=300)
    engine = LockstepEngine(cost, now=0.0)
    # Both fit at first; after 100 steps they hold 2 x 150. The second waits for the end of the
    # first (200 steps), then its 150 tokens are computed again before the 100 that are left.
    ends = run_to_end(engine, [(0.0, sequence(200, 50)), (0.0, sequence(200, 50))])
    assert engine.preemptions == 1
    assert ends == pytest.approx({0: 2.0, 1: 2.0 + 0.15 + 1.0}, abs=0.03)
    assert engine.tokens == pytest.approx(400)
    assert engine.kv_held == 0


@pytest.mark.parametrize("seed", range(3))
def test_under_pressure_every_token_is_made_once_and_kv_is_never_overdrawn(seed: int) -> None:
    rng = Random(seed)
    cost = EngineCost(step_s=0.01, sequence_s=0.001, slots=64, prefill_s=0.001, kv_tokens=2000)
    engine = LockstepEngine(cost, now=0.0)
    turns = [sequence(rng.randint(10, 300), rng.randint(0, 50)) for _ in range(80)]
    coming = [(rng.uniform(0, 10), turn) for turn in turns]
    held = []
    advance = engine.advance

    def advance_and_look(now: float) -> None:
        advance(now)
        held.append(engine.kv_held)

    engine.advance = advance_and_look  # type: ignore[method-assign]
    run_to_end(engine, coming)
    assert engine.preemptions > 0
    assert max(held) <= 2000 + 64
    assert engine.tokens == pytest.approx(sum(turn.tokens for turn in turns))
    assert (engine.num_held, engine.kv_held) == (0, 0)
