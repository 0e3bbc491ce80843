"""What a task waits for, read from its rows and from Redis; no other tenant is named."""

from __future__ import annotations

import time
from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from jobs.models import Group, PolicyVersion, Step, Task, Worker
from jobs.services import joins
from jobs.services.joins import Wait
from jobs.services.outlook import read_estimates, read_outlook
from jobs.services.tasks import pause_task

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("redis")]


@pytest.fixture
def environment() -> str:
    """Incarnation of a living environment worker."""
    row = Worker.objects.create(
        name="environment", kind="environment", host="h", pid=1, last_beat_at=timezone.now()
    )
    return str(row.pk)


@pytest.fixture
def running(make_task: Any) -> Task:
    """Three of ten steps are trained, 100 s each: 60 s of rollout, 20 s of training."""
    task = make_task("running", state="running", config={"max_steps": 10})
    Task.objects.filter(pk=task.pk).update(rollout_s=60.0, pass_s=20.0)
    now = timezone.now()
    for number in range(4):
        PolicyVersion.objects.create(task=task, number=number, digest="d", key="k")
    for number in range(3):
        ended = now - timedelta(seconds=100 * (3 - number))
        Step.objects.create(task=task, number=number, state="committed", ended_at=ended)
    task.refresh_from_db()
    return task


def _open(task: Task, *states: str) -> list[Group]:
    """Step 3 with groups in these states, those under way since 20 s."""
    step = Step.objects.create(task=task, number=3)
    sent = timezone.now() - timedelta(seconds=20)
    return [
        Group.objects.create(
            step=step,
            index=index,
            prompt_index=0,
            state=state,
            attempt=int(state != "waiting"),
            dispatched_at=None if state == "waiting" else sent,
            finished_at=timezone.now() if state == "finished" else None,
        )
        for index, state in enumerate(states)
    ]


def test_the_tool_that_a_step_waits_for_is_told_with_its_time(
    running: Task, environment: str
) -> None:
    group, _ = _open(running, "dispatched", "finished")
    joins.open_attempt(str(group.pk), 1, 1, f"worker:{environment}")
    wait = Wait(str(group.pk), 1, 0, "tool search", time.time() + 0.5)
    joins.note_waits([wait])
    found = read_outlook(running)
    assert found.step == 3
    assert found.waiting == "1 trajectory of 4: tool call search, 0 s"
    joins.move(str(group.pk), 1, [0], "queue:rollout.tiny")
    assert read_outlook(running).waiting == "1 trajectory of 4: in a queue, 0 s"


def test_a_note_of_what_is_finished_or_dead_brings_nothing_back() -> None:
    joins.open_attempt("g", 1, 2, "queue:environment")
    joins.forget("g", 1)
    joins.note_waits([Wait("g", 1, 0, "tool search", time.time())])
    assert joins.places([("g", 1)]) == []
    assert joins.whereabouts([("g", 1)]) == [()]


def test_the_planner_sees_the_same_places_with_or_without_notes(environment: str) -> None:
    joins.open_attempt("g", 1, 2, f"worker:{environment}")
    before = joins.whereabouts([("g", 1)])
    joins.note_waits([Wait("g", 1, 0, "grading", time.time() + 1)])
    assert joins.whereabouts([("g", 1)]) == before


def test_groups_not_sent_yet_are_counted_and_the_estimate_comes_from_what_was_seen(
    running: Task,
) -> None:
    _open(running, "waiting", "finished")
    found = read_outlook(running)
    assert found.waiting == "2 trajectories of 4: not sent yet"
    assert found.estimate.step and found.estimate.task
    # About 60 - 20 s of rollout and 20 s of training; then 6 steps of 100 s
    assert found.estimate.step.low_s < 60 < found.estimate.step.high_s
    assert found.estimate.task.low_s < 660 < found.estimate.task.high_s
    assert found.estimate.text.startswith("step done in ")


def test_what_stands_in_the_trainers_line_counts_whoever_it_is_of(
    running: Task, make_task: Any, umbrella: Any
) -> None:
    Step.objects.create(task=running, number=3, state="ready", ready_order=5)
    alone = read_outlook(running).estimate.step
    for order, name in ((4, "before"), (6, "behind")):
        other = make_task(name, state="running", tenant=umbrella, pass_s=1000.0)
        Step.objects.create(task=other, number=0, state="ready", ready_order=order)
    found = read_outlook(running)
    assert alone and found.estimate.step
    assert found.estimate.step.low_s - alone.low_s == pytest.approx(1000.0)
    assert "umbrella" not in f"{found}".lower()


def test_a_queued_task_says_when_its_tenants_own_let_it_in(running: Task, make_task: Any) -> None:
    queued = make_task("queued", queue_position=1)
    assert read_outlook(queued).estimate.text.startswith("starts in ")
    Task.objects.filter(pk=queued.pk).update(queue_position=2)
    queued.refresh_from_db()
    assert read_outlook(queued).estimate.text == ""


def test_nobody_knows_when_a_paused_task_goes_on_or_a_new_one_ends(
    running: Task, make_task: Any, alice: Any
) -> None:
    pause_task(running, alice)
    running.refresh_from_db()
    assert read_outlook(running).estimate.text == ""
    new = make_task("new", state="running")
    assert read_outlook(new).estimate.text == ""
    over = make_task("over", state="failed")
    assert read_outlook(over).waiting == ""


def test_a_trainer_at_work_is_told_with_its_time(running: Task) -> None:
    since = timezone.now() - timedelta(seconds=12)
    Step.objects.create(task=running, number=3, state="training", training_started_at=since)
    assert read_outlook(running).waiting == "the trainer has worked on the step for 12 s"


def test_a_list_asks_a_constant_number_of_times(
    running: Task, make_task: Any, django_assert_max_num_queries: Any
) -> None:
    tasks = [running, *(make_task(f"more {n}", state="running") for n in range(8))]
    for task in tasks[1:]:
        Step.objects.create(task=task, number=0)
    with django_assert_max_num_queries(8):
        found = read_estimates(tasks)
    assert found[running.pk].task is not None
    assert [found[task.pk].task for task in tasks[1:]] == [None] * 8
