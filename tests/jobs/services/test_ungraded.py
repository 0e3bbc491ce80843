"""A step that cannot be graded pauses its task with the reason, and is generated again."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from engine.errors import ArtifactError
from jobs import artifacts
from jobs.models import Group, PolicyVersion, Step, Task
from jobs.services import groups
from jobs.services.tasks import resume_task
from tests.jobs.trajectories import trajectory

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("redis")]
REASON = "answer: unresponsive_reward_error: the server is silent"


@pytest.fixture
def step(task: Task) -> Step:
    """Step 0 of a running task, with two dispatched groups of two."""
    Task.objects.filter(pk=task.pk).update(
        state="running", config={**task.config, "batch_size": 2, "group_size": 2}
    )
    task.refresh_from_db()
    PolicyVersion.objects.create(task=task, number=0, digest="d0", key="k0")
    step = Step.objects.create(task=task, number=0)
    for index in range(2):
        Group.objects.create(step=step, index=index, prompt_index=0, state="dispatched", attempt=1)
    return step


def _finish(group: Group, *rewards: float | None) -> None:
    found = [
        replace(trajectory(group.pk, index, reward=reward), error="" if reward else REASON)
        for index, reward in enumerate(rewards)
    ]
    assert groups.finish_group(str(group.pk), 1, found, "environment-1")


def test_half_of_a_step_may_be_ungraded(step: Step) -> None:
    first, second = step.groups.all()
    _finish(first, None, None)
    _finish(second, 1.0, 0.5)
    step.refresh_from_db()
    assert (step.state, Task.objects.get().state) == ("ready", "running")


def test_more_pauses_the_task_with_the_reason_and_trains_on_nothing(step: Step) -> None:
    first, second = step.groups.all()
    _finish(first, None, 1.0)
    _finish(second, None, None)
    step.refresh_from_db()
    task = Task.objects.get()
    assert (step.state, task.state) == ("open", "paused")
    assert task.pause_reason.startswith("3 of 4 trajectories of step 1 have no reward")
    assert "max_ungraded (50%)" in task.pause_reason
    assert REASON in task.pause_reason
    assert {group.last_error for group in step.groups.all()} == {REASON}


def test_the_ungraded_are_generated_again_when_a_person_resumes(step: Step, alice: Any) -> None:
    first, second = step.groups.all()
    _finish(first, 1.0, 0.5)
    Task.objects.update(config={**Task.objects.get().config, "max_ungraded": 0.0})
    _finish(Group.objects.select_related("step__task").get(pk=second.pk), None, 1.0)
    key = Group.objects.get(pk=second.pk).key
    assert artifacts.size(key)
    resume_task(Task.objects.get(), alice)
    states = {group.index: (group.state, group.rewards) for group in step.groups.all()}
    assert states == {0: ("finished", [1.0, 0.5]), 1: ("waiting", [])}
    assert Task.objects.get().state == "running"
    with pytest.raises(ArtifactError):
        artifacts.read(key)


def test_resuming_another_pause_keeps_what_is_finished(step: Step, alice: Any) -> None:
    first, _ = step.groups.all()
    _finish(first, None, 1.0)
    Task.objects.update(state="paused")
    resume_task(Task.objects.get(), alice)
    assert Group.objects.get(pk=first.pk).state == "finished"


def test_a_task_that_a_person_paused_says_so_in_its_log_and_generates_again(
    step: Step, alice: Any
) -> None:
    Task.objects.update(state="paused", reason="Paused by alice.")
    for group in step.groups.all():
        _finish(group, None, None)
    assert Task.objects.get().reason == "Paused by alice."
    step.refresh_from_db()
    assert step.state == "open"
    resume_task(Task.objects.get(), alice)
    assert {group.state for group in step.groups.all()} == {"waiting"}


def test_every_open_step_of_a_stale_task_is_generated_again(step: Step, alice: Any) -> None:
    later = Step.objects.create(task=step.task, number=1, policy_version=0)
    for index in range(2):
        Group.objects.create(step=later, index=index, prompt_index=0, state="dispatched", attempt=1)
    for group in Group.objects.order_by("step__number", "index"):
        _finish(group, None, None)
    assert Task.objects.get().state == "paused"
    resume_task(Task.objects.get(), alice)
    assert [group.state for group in Group.objects.all()] == ["waiting"] * 4
