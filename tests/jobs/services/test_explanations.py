"""A task's sentence is told once a second while only its counts change."""

from __future__ import annotations

import pytest

from engine.manager.snapshot import Admit, Explain
from jobs.services import explanations
from jobs.services.explanations import TOLD_EVERY_S, told_now


@pytest.fixture(autouse=True)
def nothing_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(explanations, "_told", {})


def explain(task: str, phase: str, reason: str = "") -> Explain:
    return Explain(task, phase, reason)


def test_counts_of_one_phase_wait_for_a_second_to_pass() -> None:
    first, second = explain("a", "rollout", "1 of 9"), explain("a", "rollout", "2 of 9")
    assert told_now([first], 9, 10.0) == [first]
    assert told_now([second], 9, 10.1) == []
    assert told_now([second], 9, 10.0 + TOLD_EVERY_S) == [second]


def test_a_new_phase_another_task_and_other_commands_never_wait() -> None:
    told_now([explain("a", "rollout")], 9, 10.0)
    others = [Admit("a"), explain("a", "ready"), explain("b", "rollout")]
    assert told_now(others, 9, 10.1) == others


def test_a_told_task_is_forgotten_again() -> None:
    told_now([explain("a", "rollout")], 9, 10.0)
    told_now([], 9, 20.0)
    assert explanations._told == {}


def test_what_is_cut_off_does_not_count_as_told() -> None:
    both = [explain("a", "rollout"), explain("b", "rollout")]
    assert told_now(both, 1, 10.0) == both[:1]
    assert told_now(both, 1, 10.1) == both[1:]
