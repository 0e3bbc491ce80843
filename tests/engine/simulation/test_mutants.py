"""Each checker catches the bug that is planted for it, and names itself."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from engine.simulation import SimulationFailure, run
from engine.simulation.invariants import (
    NAMES,
    Durability,
    Leases,
    OnePass,
    OneStep,
    OnPolicy,
    OwnFailure,
)
from engine.simulation.promises import Adapters, Memory, Slots
from engine.simulation.runner import LIVENESS
from engine.simulation.scenario import Scenario, Settings
from engine.simulation.shares import NoStarvation, Shares

from . import mutants

NUM_SEEDS = 500  # within which each must be found

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
    (mutants.trains_the_newer_step_first, OnePass.name),
    (mutants.generates_by_an_older_version, OnPolicy.name),
    (mutants.forgets_paused_tasks, Slots.name),
    (mutants.holds_back_for_ever, LIVENESS),
    (mutants.trains_two_at_once, OnePass.name),
    (mutants.ignores_the_limit, Slots.name),
    (mutants.charges_nobody, Shares.name),
    (mutants.charges_no_task, Shares.name),
    (mutants.ignores_weights, Shares.name),
]


FAIR_ONLY = (mutants.charges_nobody, mutants.charges_no_task, mutants.ignores_weights)


def seeds_of(mutant: Any) -> Iterator[int]:
    """All in order; where only calm runs can tell, those of them, or it would take minutes."""
    for seed in range(NUM_SEEDS):
        if mutant not in FAIR_ONLY or Scenario.of(Settings(seed)).is_fair:
            yield seed


def first_violation(mutant: Any) -> str:
    """The invariant named first; "" if the bug goes unseen."""
    for seed in seeds_of(mutant):
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
    assert {name[0] for name in NAMES if name[0].isdigit()} == {"1", "2", "3", "4", "5", "7", "8"}
    assert set(NAMES) - {NoStarvation.name} < {invariant for _, invariant in PLANTED}
