"""The limit on sequences in flight, against a simulated engine whose KV runs out."""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace

import pytest

from engine.manager import plan
from engine.manager.concurrency import CALM_S, MIN_LIMIT, see
from engine.manager.policy import PAPER
from engine.manager.snapshot import Concurrency, Counters, DispatchGroup, SetConcurrency, WorkerView
from engine.simulation.performance.cost_models import EngineCost
from engine.simulation.performance.lockstep import LockstepEngine, Sequence

from .snapshots import ENVIRONMENT, TRAINER, open_step, snapshot, task, waiting, worker

BEAT_S = 2.0
COST = EngineCost(step_s=0.01, sequence_s=1 / 20_000, slots=2_000, prefill_s=1 / 20_000)


@dataclass
class Load:
    """An engine that always gets as many sequences as the limit (or `fixed`) allows."""

    kv_tokens: int
    mean_tokens: float = 300.0  # of a sequence
    demand: int = 2_000  # sequences at most
    fixed: int = 0  # instead of a limit that is found; 0: none
    state: Concurrency = field(default_factory=lambda: Concurrency("smollm2"))
    limits: list[int] = field(default_factory=list)  # after each beat

    def __post_init__(self) -> None:
        self.engine = LockstepEngine(replace(COST, kv_tokens=self.kv_tokens), now=0.0)
        self.rng = random.Random(0)

    def work(self, seconds: float) -> float:
        """Tokens made a second."""
        began, tokens = self.engine.now, self.engine.tokens
        while self.engine.now < began + seconds:
            beat = self.engine.now + BEAT_S
            self._fill()
            while (event := self.engine.next_event_at()) < beat:
                self.engine.advance(event)
                self.engine.settle()
                self._fill()
            self.engine.advance(beat)
            self._tell()
        return (self.engine.tokens - tokens) / seconds

    def _fill(self) -> None:
        allowed = min(self.demand, self.fixed or self.state.limit or COST.slots)
        while self.engine.num_held < allowed:
            tokens = max(1, round(self.rng.lognormvariate(0, 0.7) * self.mean_tokens / 1.28))
            self.engine.add(Sequence("", tokens, "a", "t", context=50, unread=50))

    def _tell(self) -> None:
        self.state = see(self.state, [self.view()], 1_000.0 + self.engine.now)
        self.limits.append(self.state.limit)

    def view(self) -> WorkerView:
        """What the engine's worker says now."""
        return worker(
            "r#1",
            "rollout",
            num_running=self.engine.num_running,
            busy_s=self.engine.busy_s,
            sequence_s=self.engine.sequence_s,
            preemptions=self.engine.preemptions,
        )


def best_fixed(kv_tokens: int, mean_tokens: float, seconds: float) -> float:
    sweep = (64, 91, 128, 181, 256, 362, 512, 1_024)
    return max(Load(kv_tokens, mean_tokens, fixed=n).work(seconds) for n in sweep)


@pytest.mark.parametrize("demand", [20, 2_000])
def test_an_engine_that_never_preempts_gets_all_that_it_has_slots_for(demand: int) -> None:
    load = Load(kv_tokens=0, demand=demand)
    load.work(300)
    assert set(load.limits) == {0}


@pytest.mark.parametrize(
    ("kv_tokens", "mean_tokens"), [(30_000, 100), (60_000, 300), (100_000, 1_500)]
)
def test_where_kv_runs_out_the_limit_comes_near_the_best(
    kv_tokens: int, mean_tokens: float
) -> None:
    load = Load(kv_tokens, mean_tokens)
    load.work(300)
    assert load.work(600) >= 0.95 * best_fixed(kv_tokens, mean_tokens, 900)


def test_it_makes_more_than_without_a_limit() -> None:
    limited, unlimited = Load(60_000), Load(60_000, fixed=2_000)
    assert limited.work(900) > 1.02 * unlimited.work(900)


@pytest.mark.parametrize(("before", "after"), [(100, 1_000), (1_000, 100)])
def test_the_limit_follows_a_load_that_changes(before: float, after: float) -> None:
    load = Load(60_000, before)
    load.work(600)
    load.mean_tokens = after
    load.work(300)
    assert load.work(600) >= 0.95 * best_fixed(60_000, after, 900)


def test_a_limit_that_holds_nothing_back_stays() -> None:
    """Fewer want in for a while: what is known of the KV is not forgotten, and nothing sinks."""
    load = Load(60_000)
    load.work(600)
    load.demand = 20
    load.work(20)  # until the others have ended
    known = load.state.limit
    load.work(CALM_S / 2)
    assert load.state.limit == known > 100


def test_after_a_while_without_preemptions_nothing_is_limited_any_more() -> None:
    load = Load(60_000)
    load.work(300)
    assert load.state.limit
    load.demand = 20
    load.work(CALM_S + 100)
    assert (load.state.limit, load.state.sustained) == (0, 0.0)


def test_the_limit_never_strangles() -> None:
    """An engine that preempts whatever it has."""
    state = Concurrency("smollm2")
    for beat in range(300):
        counters = {"busy_s": 2.0 * beat, "sequence_s": 2.0 * beat, "preemptions": beat}
        state = see(state, [worker("r#1", "rollout", **counters)], 1_000.0 + 2 * beat)
    assert state.limit == MIN_LIMIT


@pytest.mark.parametrize("incarnation", ["r#1", "r#2"])
def test_counters_that_went_back_are_taken_as_they_are(incarnation: str) -> None:
    """A worker or its engine restarted: nothing is concluded from the difference."""
    load = Load(60_000)
    load.work(60)
    restarted = worker(incarnation, "rollout", busy_s=0.5, sequence_s=4.0, preemptions=1)
    after = see(load.state, [restarted], 2_000.0)
    assert after.counters == (Counters(incarnation, 0.5, 4.0, 1),)
    assert (after.sustained, after.limit) == (load.state.sustained, load.state.limit)


def test_a_worker_that_comes_or_goes_changes_no_limit() -> None:
    """Nor one that was only silent: all that it did since is not of this moment."""
    one = worker("a", "rollout", busy_s=100.0, sequence_s=4_000.0, preemptions=50)
    other = worker("b", "rollout", busy_s=10.0, sequence_s=100.0)
    state = replace(see(Concurrency("smollm2"), [one, other], 1.0), limit=40, sustained=40.0)
    later = replace(other, busy_s=20.0, sequence_s=200.0)
    without = see(state, [later], 11.0)
    back = see(without, [replace(one, busy_s=200.0, preemptions=90), later], 21.0)
    assert (without.limit, back.limit) == (40, 40)
    assert back.preempted_at == 0.0


def test_a_clock_that_was_set_back_does_not_keep_the_limit() -> None:
    load = Load(60_000)
    load.work(60)
    state = replace(load.state, preempted_at=9e9, limit=40, sustained=40.0)
    now = load.view()
    calm = replace(now, busy_s=now.busy_s + 5, sequence_s=now.sequence_s + 5)
    assert see(state, [calm], 2_000.0).limit == 0


def test_an_idle_engine_changes_nothing() -> None:
    load = Load(60_000)
    load.work(60)
    assert see(load.state, [load.view()], 2_000.0) == load.state


def test_no_more_groups_are_sent_than_the_limit_lets_near() -> None:
    """Groups of 4: a limit of 9 sequences lets two near at once."""
    view = task(step=open_step(*(waiting(f"g{i}", i) for i in range(9))))
    workers = (worker("r#1", "rollout", slots=100), ENVIRONMENT, TRAINER)
    limited = snapshot(view, workers=workers, concurrency=(Concurrency("smollm2", limit=9),))
    assert sum(isinstance(c, DispatchGroup) for c in plan(limited)) == 2
    assert sum(isinstance(c, DispatchGroup) for c in plan(limited, PAPER)) == 9
    other = replace(limited, concurrency=(Concurrency("qwen", limit=9),))
    assert sum(isinstance(c, DispatchGroup) for c in plan(other)) == 9


def test_what_was_found_is_kept_by_a_command() -> None:
    engine = worker("r#1", "rollout", slots=8, num_running=4, sequence_s=20.0, busy_s=5.0)
    view = snapshot(task(), workers=(engine,))
    (command,) = [c for c in plan(view) if isinstance(c, SetConcurrency)]
    assert command.concurrency.counters == (Counters("r#1", 5.0, 20.0),)
    assert not [c for c in plan(view, PAPER) if isinstance(c, SetConcurrency)]
    again = replace(view, concurrency=(command.concurrency,))
    assert not [c for c in plan(again) if isinstance(c, SetConcurrency)]
