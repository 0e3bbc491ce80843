"""Operators see what waits: queued, running with nothing under way, or held back."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from engine.manager.explain import explain_tasks
from engine.manager.passes import TrainingLine
from engine.manager.policy import SEQUENTIAL, SHIPPED
from engine.manager.rollouts import Dispatches
from engine.manager.snapshot import GroupView, Snapshot, StepView, TaskView, TenantView
from engine.manager.world import World
from jobs.models import Group, Step, Task
from jobs.services.bars import held_back_by_policy
from jobs.services.operations import HELD_BACK
from jobs.services.waiting_tasks import HOLDING_WORDS, waiting_tasks

pytestmark = pytest.mark.django_db


def _names() -> list[str]:
    return [task.name for task in waiting_tasks()]


def _send(task: Task) -> None:
    """One of its groups is under way."""
    step = Step.objects.create(task=task, number=0)
    Group.objects.create(step=step, index=0, prompt_index=0, state="dispatched")
    Group.objects.create(step=step, index=1, prompt_index=1)


def test_a_task_waits_while_it_is_queued_or_nothing_of_it_is_under_way(make_task: Any) -> None:
    make_task("queued")
    make_task("unopened", state="running", phase="rollout")
    ready = make_task("ready", state="running", phase="ready")
    Step.objects.create(task=ready, number=0, state="ready")
    _send(make_task("sent", state="running", phase="rollout"))
    trained = make_task("trained", state="running", phase="training")
    Step.objects.create(task=trained, number=0, state="training")
    make_task("prepared", state="running", phase="preparing")
    for state in ("paused", "succeeded", "failed", "cancelled"):
        make_task(state, state=state)
    assert set(_names()) == {"queued", "unopened", "ready"}


@pytest.mark.parametrize("words", HOLDING_WORDS)
def test_a_task_that_is_held_back_waits_though_something_is_under_way(
    words: str, make_task: Any
) -> None:
    _send(make_task("held", state="running", reason=f"step 2 of 9: 1 of 2 groups: {words} so"))
    assert _names() == ["held"]


def test_who_is_longest_in_its_phase_comes_first(make_task: Any) -> None:
    now = timezone.now()
    make_task("new")  # was submitted just now, and the planner has not seen it
    make_task("short", phase_since=now - timedelta(minutes=1))
    make_task("long", phase_since=now - timedelta(minutes=9))
    assert _names() == ["long", "short", "new"]


def test_the_planners_own_words_are_those_that_are_looked_for() -> None:
    step = StepView(1, "open", (GroupView("g", 0, "waiting"),))
    reasons = [_reason(step, is_suspended=True), _reason(step)]
    found = {words for words in HOLDING_WORDS for reason in reasons if words in reason}
    assert found == set(HOLDING_WORDS) - {HELD_BACK}  # which has a test of its own


def _reason(step: StepView, **tenant: Any) -> str:
    """What the planner says of a task whose base model has no worker."""
    task = TaskView("t", "1", "tiny", "running", 0.0, 9, 1, 4, 100, version=1, steps=(step,))
    world = World.of(Snapshot(50.0, (TenantView("1", **tenant),), (task,)), SHIPPED)
    (command,) = explain_tasks(world, set(), Dispatches(), TrainingLine())
    return command.reason


def test_tasks_that_the_policy_does_not_let_begin_are_counted(make_task: Any) -> None:
    for name in ("first", "second", "third"):
        make_task(name, state="running")
    make_task("queued")
    assert [slug for _, slug in held_back_by_policy(SEQUENTIAL)] == ["tiny", "tiny"]
    assert held_back_by_policy(SHIPPED) == []
