"""What the planner decides becomes rows and stage calls, and what is lost is sent again."""

import base64
import json
from datetime import timedelta
from itertools import pairwise
from typing import Any

import msgpack
import pytest
from django.db import connection, transaction
from django.utils import timezone
from redis import Redis

from engine.types import pack_ids
from jobs import artifacts
from jobs.models import Group, PolicyVersion, Step, Task, Worker
from jobs.services import flights, joins, planning
from jobs.services.flights import look_at_flights
from jobs.services.payloads import write_prompts
from jobs.services.snapshots import take_snapshot
from jobs.services.tasks import cancel_task, pause_task, resume_task

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("redis")]


@pytest.fixture(autouse=True)
def look_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """For each plan, however slow this machine is: what is kept of looks has tests of its own."""
    monkeypatch.setattr(flights, "CHEAP_S", float("inf"))


@pytest.fixture
def workers() -> None:
    for kind in ("rollout", "training"):
        Worker.objects.create(
            name=kind,
            kind=kind,
            host="here",
            pid=1,
            base_models=["tiny"],
            slots=64,
            last_beat_at=timezone.now(),
        )


@pytest.fixture
def prepared(task: Task, workers: None) -> Task:
    """A running task with prompts and version 0, as the preparation leaves it."""
    prompts = [{"ids": pack_ids([1, 2, n]), "row": {"answer": str(n)}} for n in range(4)]
    task.prompts_key = write_prompts(task.pk, prompts)
    task.num_prompts, task.state = 4, "running"
    task.save()
    PolicyVersion.objects.create(task=task, number=0, digest="d0", key="k0")
    return task


def _plan() -> None:
    while planning.plan_once():
        pass


def _snapshot() -> Any:
    flights = look_at_flights()
    with transaction.atomic():
        return planning.take_snapshot(flights)


def _messages(queue: str) -> list[dict[str, Any]]:
    """Bodies of the stage calls waiting in a queue, oldest first; takes them out."""
    found = []
    while raw := joins.redis.rpop(f"marlaas:{queue}"):
        body = base64.b64decode(json.loads(raw)["body"])
        found.append(msgpack.unpackb(body)[0][0])
    return found


def test_a_submitted_task_is_admitted_and_prepared(task: Task, workers: None) -> None:
    _plan()
    task.refresh_from_db()
    assert task.state == "running"
    assert task.started_at
    assert [m["task"] for m in _messages("chores")] == [str(task.pk)]


def test_the_first_step_is_opened_and_its_groups_are_sent(prepared: Task) -> None:
    _plan()
    step = Step.objects.get(task=prepared)
    sent = _messages("rollout.tiny")
    assert [g.state for g in step.groups.all()] == ["dispatched", "dispatched"]
    assert {m["group"] for m in sent} == {str(g.pk) for g in step.groups.all()}
    first = sent[0]
    assert (first["version"], first["digest"], first["adapter"]) == (0, "d0", "k0")
    assert len(first["prompt"]) == 3 * 4
    assert first["indexes"] == [0, 1]
    assert len(set(first["seeds"])) == 2
    assert first["row"]["answer"] in {"0", "1", "2", "3"}


def test_messages_reveal_no_tokens_in_their_headers(prepared: Task, redis: Redis) -> None:
    _plan()
    raw = redis.lindex("marlaas:rollout.tiny", 0)
    assert b'"argsrepr": "-"' in raw
    assert b'"kwargsrepr": "-"' in raw


def test_work_lost_with_redis_is_sent_again_as_a_new_attempt(prepared: Task, redis: Redis) -> None:
    _plan()
    redis.flushall()
    Group.objects.update(dispatched_at=timezone.now() - timedelta(seconds=4))
    _plan()
    assert {g.attempt for g in Group.objects.all()} == {2}
    assert {m["attempt"] for m in _messages("rollout.tiny")} == {2}


def test_a_ready_step_is_sent_to_train_under_a_new_fence(prepared: Task) -> None:
    step = Step.objects.create(task=prepared, number=0, state="ready", ready_order=1)
    _plan()
    step.refresh_from_db()
    assert (step.state, step.fence) == ("training", 1)
    assert _messages("training.tiny") == [{"step": step.pk, "fence": 1}]


def test_a_trainer_that_fell_silent_loses_its_step(prepared: Task) -> None:
    dead = Worker.objects.create(
        name="training-old",
        kind="training",
        host="here",
        pid=2,
        base_models=["tiny"],
        last_beat_at=timezone.now() - timedelta(seconds=11),
    )
    step = Step.objects.create(
        task=prepared, number=0, state="training", ready_order=1, fence=1, holder=str(dead.pk)
    )
    _plan()
    step.refresh_from_db()
    assert (step.fence, step.holder) == (2, "")


def test_redis_is_never_asked_while_the_planner_holds_locks(
    prepared: Task, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_transaction = []

    def watched(command: Any) -> Any:
        def call(*arguments: Any, **options: Any) -> Any:
            in_transaction.append(connection.in_atomic_block)
            return command(*arguments, **options)

        return call

    _plan()
    monkeypatch.setattr(joins.redis, "pipeline", watched(joins.redis.pipeline))
    monkeypatch.setattr(joins.redis, "execute_command", watched(joins.redis.execute_command))
    Group.objects.update(dispatched_at=timezone.now() - timedelta(seconds=4))
    joins.redis.flushall()
    _plan()
    assert in_transaction
    assert not any(in_transaction)


def test_a_command_that_cannot_be_carried_out_ends_its_own_task_and_no_other(
    prepared: Task, make_task: Any
) -> None:
    broken = make_task("broken", state="running", prompts_key="gone", num_prompts=0)
    PolicyVersion.objects.create(task=broken, number=0, digest="d0", key="k0")
    _plan()
    broken.refresh_from_db()
    prepared.refresh_from_db()
    assert broken.state == "failed"
    assert "internal error" in broken.reason
    assert prepared.state == "running"
    assert Group.objects.filter(step__task=prepared, state="dispatched").count() == 2
    assert not Step.objects.filter(task=broken).exists()


def test_damaged_prompts_end_their_task_with_the_reason(prepared: Task) -> None:
    artifacts.put(prepared.prompts_key, b"junk")
    for _ in range(4):
        _plan()
    prepared.refresh_from_db()
    assert prepared.state == "failed"
    assert f"artifact {prepared.prompts_key} is damaged" in prepared.reason


def test_a_flood_of_tasks_is_planned_in_bounded_pieces(
    make_task: Any, workers: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(planning, "MAX_COMMANDS", 3)
    tasks = [make_task(f"sums {n}") for n in range(8)]
    counts = []
    while count := planning.plan_once():
        counts.append(count)
    assert max(counts) == 3
    for task in tasks:
        task.refresh_from_db()
    assert [task.state for task in tasks[:3]] == ["running", "running", "queued"]
    assert all(task.reason for task in tasks)


def test_a_task_with_all_its_versions_succeeds(prepared: Task) -> None:
    for number in (1, 2):
        PolicyVersion.objects.create(task=prepared, number=number, digest="d", key="k")
    _plan()
    prepared.refresh_from_db()
    assert prepared.state == "succeeded"
    assert prepared.ended_at


def test_a_quiet_system_is_left_alone(prepared: Task) -> None:
    _plan()
    assert planning.plan_once() == 0


def test_the_planner_sees_what_engines_told_with_their_last_beat(prepared: Task) -> None:
    figures = {"kv_tokens": 900, "kv_tokens_free": 70, "adapter_slots": 5, "tokens_per_s": 12.5}
    Worker.objects.filter(kind="rollout").update(stats={**figures, "num_running": 3})
    (seen,) = [w for w in _snapshot().workers if w.kind == "rollout"]
    assert {name: getattr(seen, name) for name in figures} == figures
    (silent,) = [w for w in _snapshot().workers if w.kind == "training"]
    assert (silent.kv_tokens, silent.adapter_slots) == (0, 0)


def test_a_group_is_expected_to_fill_all_it_may_until_some_were_measured(prepared: Task) -> None:
    """2 trajectories of 64 tokens and a prompt of 512; fairness counts half of what they may."""
    (view,) = _snapshot().tasks
    assert (view.group_cost, view.group_kv) == (64, 640)
    Task.objects.update(mean_group_tokens=90.4)
    (view,) = _snapshot().tasks
    assert (view.group_cost, view.group_kv) == (90, 90)


def test_groups_wait_for_the_memory_of_the_engine(prepared: Task) -> None:
    Task.objects.update(mean_group_tokens=100)
    Worker.objects.filter(kind="rollout").update(stats={"kv_tokens": 150, "kv_tokens_free": 150})
    _plan()
    assert len(_messages("rollout.tiny")) == 1
    prepared.refresh_from_db()
    assert prepared.reason == (
        "step 1 of 2: 1 of 2 groups waiting for room in the engine: its memory for tokens is taken"
    )


def test_planning_asks_the_database_a_constant_number_of_times(
    prepared: Task, make_task: Any, django_assert_max_num_queries: Any
) -> None:
    for n in range(10):
        make_task(f"more {n}", state="running")
    _plan()
    with django_assert_max_num_queries(14):
        planning.plan_once()


def test_the_policy_of_the_settings_decides(prepared: Task, make_task: Any, settings: Any) -> None:
    """One task after the other: the second is prepared by nobody."""
    settings.SCHEDULE_POLICY = "sequential"
    make_task("second")
    _plan()
    assert Group.objects.filter(step__task=prepared, state="dispatched").count() == 2
    assert _messages("chores") == []
    settings.SCHEDULE_POLICY = "shipped"
    _plan()
    assert len(_messages("chores")) == 1


def test_a_stale_task_opens_its_next_step_by_the_same_version(prepared: Task) -> None:
    Task.objects.update(config={**prepared.config, "max_staleness": 1, "max_steps": 5})
    _plan()
    found = [(step.number, step.generated_by) for step in Step.objects.order_by("number")]
    assert found == [(0, 0), (1, 0)]
    sent = _messages("rollout.tiny")
    assert [(m["step"], m["version"], m["digest"]) for m in sent] == [
        (0, 0, "d0"),
        (0, 0, "d0"),
        (1, 0, "d0"),
        (1, 0, "d0"),
    ]
    seeds = {seed for message in sent for seed in message["seeds"]}
    assert len(seeds) == 8


def test_groups_leave_in_the_order_of_their_virtual_times(prepared: Task, make_task: Any) -> None:
    """Two tasks of one tenant take turns, though each task's groups are dispatched together."""
    other = make_task("other", state="running", num_prompts=4, prompts_key=prepared.prompts_key)
    PolicyVersion.objects.create(task=other, number=0, digest="d1", key="k1")
    Task.objects.update(config={**prepared.config, "batch_size": 4})
    _plan()
    sent = [message["task"] for message in _messages("rollout.tiny")]
    assert sorted(sent) == sorted(4 * [str(prepared.pk), str(other.pk)])
    assert all(one != following for one, following in pairwise(sent))


def test_the_end_of_a_stale_task_drops_all_its_steps(prepared: Task, alice: Any) -> None:
    Task.objects.update(config={**prepared.config, "max_staleness": 2, "max_steps": 9})
    _plan()
    assert Step.objects.filter(state="open").count() == 3
    cancel_task(Task.objects.get(), alice)
    assert set(Step.objects.values_list("state", flat=True)) == {"dropped"}
    assert set(Group.objects.values_list("state", flat=True)) == {"dropped"}
    assert look_at_flights().places == {}


def test_the_steps_of_a_stale_task_train_in_order_whichever_is_ready_first(
    prepared: Task, alice: Any
) -> None:
    Task.objects.update(config={**prepared.config, "max_staleness": 1, "max_steps": 9})
    _plan()
    Step.objects.filter(number=1).update(state="ready", ready_order=1)
    _plan()
    assert _messages("training.tiny") == []
    first = Step.objects.get(number=0)
    Step.objects.filter(number=0).update(state="ready", ready_order=2)
    pause_task(Task.objects.get(), alice)
    _plan()
    assert _messages("training.tiny") == []
    resume_task(Task.objects.get(), alice)
    _plan()
    assert _messages("training.tiny") == [{"step": first.pk, "fence": 1}]
    _plan()
    assert _messages("training.tiny") == []


def test_a_plan_notes_what_it_charged_and_from_where(prepared: Task) -> None:
    """Nobody's costs are known, so a group costs what its tokens are guessed to. The next plan
    sees the same figures."""
    _plan()
    task, step = Task.objects.select_related("tenant").get(), Step.objects.get()
    cost = step.charged_s / step.groups.count()
    assert cost > 0
    for times in (task, task.tenant):
        assert times.virtual_time == pytest.approx(step.charged_s)
        assert times.last_start == pytest.approx(step.charged_s - cost)
    with transaction.atomic():
        seen = take_snapshot(look_at_flights())
    assert seen.tenants[0].last_start == task.tenant.last_start
    assert seen.tasks[0].last_start == task.last_start
