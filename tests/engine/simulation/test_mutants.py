"""Each checker catches the bug that is planted for it, and names itself."""

from __future__ import annotations

from typing import Any

import pytest

from engine.simulation import SimulationFailure, run
from engine.simulation.invariants import (
    CHECKERS,
    Adapters,
    Durability,
    Leases,
    Memory,
    OnePass,
    OneStep,
    OnPolicy,
    OwnFailure,
    Slots,
)
from engine.simulation.runner import LIVENESS

from . import mutants

NUM_SEEDS = 30

PLANTED: list[tuple[Any, str]] = [
    (mutants.ReadyOneGroupTooSoon, OnPolicy.name),
    (mutants.AnyAdapter, OnPolicy.name),
    (mutants.opens_two_steps, OneStep.name),
    (mutants.NoFence, OneStep.name),
    (mutants.two_passes_a_trainer, OnePass.name),
    (mutants.last_in_first_out, OnePass.name),
    (mutants.LateAttempts, Leases.name),
    (mutants.never_redispatches, Leases.name),
    (mutants.fails_the_neighbour, OwnFailure.name),
    (mutants.fails_whoever_lost_a_worker, OwnFailure.name),
    (mutants.ForgetsOnCrash, Durability.name),
    (mutants.ForgetsPayloads, Durability.name),
    (mutants.slots_promised_twice, Slots.name),
    (mutants.memory_promised_twice, Memory.name),
    (mutants.forgets_what_it_sent, Memory.name),
    (mutants.adapters_promised_twice, Adapters.name),
    (mutants.never_retrains, LIVENESS),
]


def first_violation(mutant: Any) -> str:
    """The invariant named first, over a few dozen seeds; "" if the bug goes unseen."""
    for seed in range(NUM_SEEDS):
        bug = {"store": mutant()} if isinstance(mutant, type) else {"plan": mutant}
        try:
            run(seed, **bug)
        except SimulationFailure as failure:
            return failure.invariant
    return ""


@pytest.mark.parametrize(("mutant", "invariant"), PLANTED, ids=lambda v: getattr(v, "__name__", ""))
def test_a_planted_bug_is_caught_by_the_checker_meant_for_it(mutant: Any, invariant: str) -> None:
    assert first_violation(mutant) == invariant


def test_a_bug_is_planted_for_every_invariant_but_the_sixth() -> None:
    names = {checker.name for checker in CHECKERS}
    assert {name[0] for name in names} == {"1", "2", "3", "4", "5", "7", "8"}
    assert names < {invariant for _, invariant in PLANTED}
