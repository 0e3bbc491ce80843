"""What a task waits for, read from its rows and from Redis; no other tenant is named."""

from __future__ import annotations

import time
from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from jobs.models import Group, PolicyVersion, Step, Task, Tenant, TokenUsage, Worker
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
def workers(base_model: Any) -> None:
    """A rollout worker and a trainer live."""
    for kind in ("rollout", "training"):
        Worker.objects.create(
            name=kind,
            kind=kind,
            host="h",
            pid=1,
            base_models=[base_model.slug],
            last_beat_at=timezone.now(),
        )


@pytest.fixture
def running(make_task: Any, workers: None) -> Task:
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


def test_a_queued_task_says_when_its_tenants_own_let_it_in(
    running: Task, make_task: Any, alice: Any
) -> None:
    queued = make_task("queued", queue_position=1, reason="waiting")
    assert read_outlook(queued).estimate.text.startswith("starts in ")
    behind = make_task("behind", queue_position=2, reason="waiting")
    assert read_outlook(behind).estimate.text.startswith("starts in at least ")
    far = make_task("far", reason="waiting")
    why = "nobody can say: more of your tasks go before it than are counted"
    assert read_outlook(far).estimate.text == why
    pause_task(running, alice)
    why = "nobody can say: it waits for the end of your tasks, of which 1 is paused"
    assert read_outlook(queued).estimate.text == why


def test_one_end_that_nobody_knows_does_not_hide_the_others(running: Task, make_task: Any) -> None:
    make_task("paused", state="paused")
    queued = make_task("queued", queue_position=1, reason="waiting")
    first = read_outlook(queued).estimate.start
    assert first and 0 < first.low_s < first.high_s < 10_000
    running.tenant.max_concurrent_tasks = 1  # one more is let in than may be now
    running.tenant.save()
    assert read_outlook(queued).estimate.start is None


def test_nobody_knows_when_a_paused_task_goes_on_or_the_very_first_ends(
    running: Task, make_task: Any, alice: Any
) -> None:
    pause_task(running, alice)
    running.refresh_from_db()
    assert read_outlook(running).estimate.text == "nobody can say: the task is paused"
    Task.objects.update(rollout_s=0.0, pass_s=0.0)
    new = make_task("new", state="running")
    assert read_outlook(new).estimate.text == "nobody can say: no step was trained yet"
    over = make_task("over", state="failed")
    assert (read_outlook(over).waiting, read_outlook(over).estimate.text) == ("", "")


def test_a_new_task_is_expected_to_take_about_as_long_as_others(
    running: Task, make_task: Any
) -> None:
    new = make_task("new", state="running")
    Step.objects.create(task=new, number=0)
    found = read_outlook(new).estimate.step
    assert found and found.low_s < 80 < 2 * 80 < found.high_s


def _held(task: Task, seconds: float = 113.0) -> None:
    """Its step 3 was opened so long ago, and nothing of it was ever sent."""
    _open(task, "waiting", "waiting")
    since = timezone.now() - timedelta(seconds=seconds)
    Step.objects.filter(task=task, number=3).update(opened_at=since)
    Step.objects.filter(task=task, number=2).update(ended_at=since)


def test_a_step_of_which_nothing_was_sent_is_said_to_take_longer_the_longer_it_waits(
    running: Task,
) -> None:
    _held(running, 0.0)
    first = read_outlook(running).estimate
    Step.objects.update(opened_at=timezone.now() - timedelta(seconds=113))
    Step.objects.filter(number=2).update(ended_at=timezone.now() - timedelta(seconds=113))
    second = read_outlook(running).estimate
    assert first.step and first.task and second.step and second.task
    assert second.step.high_s > first.step.high_s + 100
    assert second.task.high_s > first.task.high_s + 100


def test_a_step_that_waits_for_tasks_of_higher_priority_has_no_number(
    running: Task, make_task: Any, umbrella: Any
) -> None:
    _held(running, 400.0)
    make_task("theirs", state="running", priority=9, tenant=umbrella)
    assert read_outlook(running).estimate.step
    make_task("urgent", state="running", priority=5)
    found = read_outlook(running).estimate
    assert (found.step, found.task) == (None, None)
    assert found.text == "nobody can say: 1 of your tasks with higher priority goes first"


def test_a_task_that_the_policy_does_not_let_begin_has_no_number(
    running: Task, make_task: Any, umbrella: Any, settings: Any
) -> None:
    settings.SCHEDULE_POLICY = "sequential"
    _held(running)
    assert read_outlook(running).estimate.step
    early = running.submitted_at - timedelta(hours=1)
    first = make_task("first", state="running", tenant=umbrella)
    Task.objects.filter(pk=first.pk).update(submitted_at=early)
    found = read_outlook(running).estimate
    assert (found.step, found.task) == (None, None)
    assert found.text == "nobody can say: the policy sequential runs other tasks first"


def test_what_keeps_a_task_from_beginning_anything_is_said_instead_of_a_number(
    running: Task,
) -> None:
    _held(running)
    Worker.objects.filter(kind="rollout").update(stopped_at=timezone.now())
    slug = running.base_model.slug
    why = f"nobody can say: no rollout worker for {slug} is running"
    assert read_outlook(running).estimate.text == why
    running.tenant.is_suspended = True
    running.tenant.save()
    why = "nobody can say: your organisation is suspended"
    assert read_outlook(running).estimate.text == why


def test_a_used_up_quota_lets_the_present_step_end(running: Task) -> None:
    Step.objects.create(task=running, number=3, state="ready", ready_order=1)
    running.tenant.tokens_per_day = 100
    running.tenant.save()
    TokenUsage.objects.create(tenant=running.tenant, day=TokenUsage.today(), tokens=100)
    found = read_outlook(running).estimate
    assert found.step and found.task is None
    why = "not before 00:00 UTC: your organisation's tokens of today are used"
    assert found.text.endswith(f"; of the whole task, {why}")
    Step.objects.filter(number=3).delete()
    assert read_outlook(running).estimate.text == why


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
    Tenant.objects.update(max_concurrent_tasks=0)
    tasks += [make_task(f"queued {n}", queue_position=n + 1, reason="r") for n in range(8)]
    with django_assert_max_num_queries(12):
        found = read_estimates(tasks)
    assert all(found[task.pk].task for task in tasks[:9])
    assert all(found[task.pk].start for task in tasks[9:])
