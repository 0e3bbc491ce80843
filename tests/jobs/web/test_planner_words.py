"""Decisions are told in the grammar, units and order of people."""

from __future__ import annotations

from dataclasses import replace

import pytest

from engine.manager.policy import SEQUENTIAL
from jobs.services.decisions import KINDS, Basis, Decision
from jobs.web.planner_words import RULES, basis_words, pacing_bound, policy_bound, ranges, rule

ONE = Decision(
    at=50.0,
    kind="send groups",
    basis=Basis(
        "tiny", in_flight=1, away=0, waiting=2_000, line=1, slots=64, tenant_time=193.7, priority=2
    ),
    step=3,
    tenant_time=210.6,
)


def test_places_are_told_as_people_count() -> None:
    assert ranges([0, 1, 2, 6, 4]) == "1–3, 5, 7"


def test_one_is_told_in_the_singular_and_times_have_their_unit() -> None:
    assert basis_words(ONE) == [
        "1 sequence in flight for 64 slots",
        "0 sequences with environments",
        "2,000 groups to be sent",
        "1 step at the trainer",
        "virtual time of the tenant 193.7 → 210.6 s",
    ]
    task = replace(ONE, basis=replace(ONE.basis, limit=8, tenant_time=None, task_time=7.0))
    words = basis_words(task)
    assert words[0] == "1 sequence in flight for 64 slots, limit 8"
    assert words[-1] == "of the task 7.0 s, priority 2"


@pytest.mark.parametrize("kind", sorted({*KINDS.values()} - {"end", "limit"}))
def test_every_decision_without_a_cause_of_its_own_has_a_rule(kind: str) -> None:
    assert rule(replace(ONE, kind=kind))


def test_the_rules_are_of_kinds_that_there_are() -> None:
    assert set(RULES) < set(KINDS.values())
    assert rule(replace(ONE, kind="open step")) == "version 3 is there to generate it"
    assert rule(replace(ONE, kind="end")) == ""


def test_the_bounds_of_policies_are_whole_sentences() -> None:
    assert pacing_bound() == (
        "a step begins only while each trainer has less training before it than 1.4 times a"
        " rollout’s length, and one pass; tasks that others of their tenant will outlast let those"
        " pass"
    )
    assert policy_bound(SEQUENTIAL).startswith("at most one task is under way at once")
