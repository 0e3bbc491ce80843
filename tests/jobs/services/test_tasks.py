"""Tasks are submitted whole or refused with every wrong field; states move only as allowed."""

from __future__ import annotations

import io
import json
import threading
import uuid
from datetime import timedelta
from typing import Any

import pytest
from django.core.exceptions import PermissionDenied
from django.db import connection
from django.utils import timezone

from engine.errors import QuotaError, SpecError
from jobs.models import Dataset, Group, Member, Step, StreamEvent, Task, TokenUsage
from jobs.services import tasks
from jobs.services.datasets import import_dataset
from jobs.services.tasks import (
    ConflictError,
    cancel_task,
    clone_task,
    pause_task,
    quota_use,
    resume_task,
    set_priority,
    submit_task,
)

pytestmark = pytest.mark.django_db

GRADERS = [{"type": "numeric", "target": "answer"}]
CONFIG = {"max_prompt_length": 64, "lora_rank": 8}


@pytest.fixture
def submit(acme: Any, alice: Any, base_model: Any, dataset: Any) -> Any:
    """Submits as alice what is in order but for the given fields."""

    def run(**fields: Any) -> Task:
        given = {
            "tenant": acme,
            "user": alice,
            "name": "sums",
            "base_model": base_model,
            "dataset": dataset,
            "config": CONFIG,
            "graders": GRADERS,
        }
        return submit_task(**{**given, **fields})

    return run


def wrong_fields(submit: Any, **fields: Any) -> dict[str, list[str]]:
    before = Task.objects.count()
    with pytest.raises(SpecError) as caught:
        submit(**fields)
    assert Task.objects.count() == before
    return caught.value.fields


def test_a_submitted_task_is_queued_with_all_its_settings_and_announced(
    submit: Any, alice: Any, dataset: Any
) -> None:
    task = submit(config={"num_generations": "4", "max_prompt_length": 64})
    assert (task.state, task.phase, task.created_by) == ("queued", "queued", alice)
    assert task.config["group_size"] == 4
    assert task.config["learning_rate"] == 1e-4
    assert task.graders == [
        {
            "type": "numeric",
            "name": "numeric",
            "weight": 1.0,
            "target": "answer",
            "which": "last",
            "tolerance": 0.0,
            "relative_tolerance": 0.0,
            "decimal_mark": "auto",
            "units": "ignore",
            "percent": "number",
        }
    ]
    kinds = StreamEvent.objects.filter(stream=task.stream).values_list("kind", flat=True)
    assert list(kinds) == ["state", "log"]
    assert StreamEvent.objects.filter(stream=f"tenant:{task.tenant_id}", kind="task").exists()


def test_a_slug_and_an_id_do_instead_of_rows(submit: Any, base_model: Any, dataset: Any) -> None:
    task = submit(base_model="tiny", dataset=str(dataset.pk))
    assert (task.base_model, task.dataset) == (base_model, dataset)


def test_every_wrong_field_is_told_at_once(submit: Any) -> None:
    errors = wrong_fields(
        submit,
        name=" ",
        base_model="huge",
        dataset=str(uuid.uuid4()),
        config={"batch_size": 0, "learning_rat": 1},
        graders=[{"type": "regex", "pattern": "("}],
    )
    assert errors == {
        "name": ["Must not be empty."],
        "base_model": ["There is no 'huge'; there are: tiny."],
        "dataset": ["Acme has no such dataset; give the id of one."],
        "config.batch_size": ["Must be at least 1, not 0."],
        "config.learning_rat": ["There is no setting 'learning_rat'. Did you mean learning_rate?"],
        "graders.0.pattern": ["Is not a regular expression: missing ) at position 1."],
    }


def test_limits_of_tenant_model_and_dataset_are_checked_together(submit: Any, acme: Any) -> None:
    acme.max_lora_rank = 8
    acme.save()
    errors = wrong_fields(
        submit,
        config={"lora_rank": 9, "max_prompt_length": 200, "max_completion_length": 57},
        graders=[{"type": "exact", "target": "solution"}],
    )
    assert errors == {
        "config.lora_rank": ["Must be at most 8, the quota of Acme."],
        "config.max_completion_length": [
            "With max_prompt_length it makes 257 tokens; Tiny takes 256 together."
        ],
        "graders.0.target": ["The dataset has no column 'solution'; it has: messages, answer."],
    }
    fits = {"lora_rank": 8, "max_prompt_length": 200, "max_completion_length": 56}
    assert submit(config=fits).hyperparameters.lora_rank == 8


@pytest.mark.parametrize("value", [None, 3, [], {}, "tiny' --", "\0"])
def test_strangers_values_for_model_and_dataset_are_refused(submit: Any, value: Any) -> None:
    assert set(wrong_fields(submit, base_model=value, dataset=value)) == {"base_model", "dataset"}


def test_another_tenants_dataset_is_as_absent_as_an_unknown_one(
    submit: Any, umbrella: Any, mallory: Any
) -> None:
    file = io.BytesIO(b'{"prompt": "a", "answer": "1"}')
    foreign = import_dataset(tenant=umbrella, user=mallory, name="own", file=file)
    unknown = wrong_fields(submit, dataset=str(uuid.uuid4()))
    assert wrong_fields(submit, dataset=foreign) == unknown
    assert wrong_fields(submit, dataset=str(foreign.pk)) == unknown


def test_a_base_model_that_is_switched_off_takes_no_task(submit: Any, base_model: Any) -> None:
    base_model.is_enabled = False
    base_model.save()
    assert wrong_fields(submit) == {"base_model": ["Tiny takes no new tasks."]}
    assert "base_model" in wrong_fields(submit, base_model="tiny")


def test_a_target_that_no_row_can_use_is_refused(submit: Any, acme: Any, alice: Any) -> None:
    rows = [{"prompt": "a", "answer": word, "level": 1} for word in ("one", "two")]
    file = io.BytesIO("\n".join(map(json.dumps, rows)).encode())
    words = import_dataset(tenant=acme, user=alice, name="words", file=file)
    assert wrong_fields(submit, dataset=words) == {
        "graders.0.target": [
            "No row looked at can be graded: column 'answer' holds 'one', which is not a number."
        ]
    }
    assert submit(dataset=words, graders=[{"type": "numeric", "target": "level"}])


def test_viewers_and_strangers_may_not_submit(
    submit: Any, acme: Any, make_user: Any, mallory: Any, bob: Any
) -> None:
    viewer = make_user("vera", acme, Member.Role.VIEWER)
    for user in (viewer, mallory):
        with pytest.raises(PermissionDenied):
            submit(user=user)
    assert submit(user=bob).created_by == bob


def test_more_tasks_than_may_run_are_queued(submit: Any, acme: Any) -> None:
    assert acme.max_concurrent_tasks == 2
    assert [submit(name=f"t{n}").state for n in range(4)] == ["queued"] * 4


def test_a_flood_of_tasks_is_stopped(submit: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tasks, "MAX_ACTIVE_TASKS", 2)
    submit()
    submit()
    with pytest.raises(QuotaError, match="2 tasks are waiting or running"):
        submit()


def test_an_idempotency_key_submits_once(submit: Any) -> None:
    task = submit(idempotency_key="k1")
    assert submit(idempotency_key="k1") == task
    assert submit(idempotency_key="k2") != task
    assert Task.objects.count() == 2


def test_an_idempotency_key_is_for_one_request(submit: Any) -> None:
    submit(idempotency_key="k1")
    with pytest.raises(ConflictError, match="other settings"):
        submit(idempotency_key="k1", name="other")
    with pytest.raises(ConflictError, match="other settings"):
        submit(idempotency_key="k1", config={**CONFIG, "seed": 1})


def test_an_idempotency_key_belongs_to_its_tenant(submit: Any, umbrella: Any, mallory: Any) -> None:
    task = submit(idempotency_key="k1")
    file = io.BytesIO(b'{"prompt": "a", "answer": "1"}')
    own = import_dataset(tenant=umbrella, user=mallory, name="own", file=file)
    other = submit(tenant=umbrella, user=mallory, dataset=own, idempotency_key="k1")
    assert other.pk != task.pk


@pytest.mark.django_db(transaction=True)
def test_the_same_request_at_the_same_time_submits_once(submit: Any) -> None:
    barrier = threading.Barrier(4)
    found: list[Any] = []

    def run() -> None:
        barrier.wait()
        try:
            found.append(submit(idempotency_key="k1").pk)
        finally:
            connection.close()

    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 4
    assert len(set(found)) == Task.objects.count() == 1


def test_a_clone_differs_in_what_is_asked_for(task: Task, bob: Any) -> None:
    copy = clone_task(task, bob, {"config": {"num_generations": 4, "max_prompt_length": 64}})
    assert copy.config == {**task.config, "group_size": 4, "max_prompt_length": 64}
    assert (copy.name, copy.cloned_from, copy.created_by) == ("sums (copy)", task, bob)
    assert copy.graders[0]["target"] == "answer"
    with pytest.raises(SpecError) as caught:
        clone_task(task, bob, {"config": "none", "name": ""})
    assert set(caught.value.fields) == {"config", "name"}


def test_cancel_ends_a_task_and_frees_the_quota(make_task: Any, alice: Any, acme: Any) -> None:
    task = make_task(state=Task.State.RUNNING)
    step = Step.objects.create(task=task, number=0)
    group = Group.objects.create(step=step, index=0, prompt_index=0, state="dispatched")
    assert quota_use(acme)["concurrent_tasks"]["used"] == 1
    cancel_task(task, alice)
    task.refresh_from_db()
    step.refresh_from_db()
    group.refresh_from_db()
    assert (task.state, task.reason) == ("cancelled", "Cancelled by alice@example.com.")
    assert (step.state, group.state) == ("dropped", "dropped")
    assert quota_use(acme)["concurrent_tasks"]["used"] == 0


def test_pause_and_resume_move_a_running_task_there_and_back(
    make_task: Any, alice: Any, acme: Any
) -> None:
    task = make_task(state=Task.State.RUNNING)
    pause_task(task, alice)
    task.refresh_from_db()
    assert task.state == "paused"
    assert quota_use(acme)["concurrent_tasks"]["used"] == 1
    resume_task(task, alice)
    task.refresh_from_db()
    assert task.state == "running"


@pytest.mark.parametrize(
    ("verb", "state", "message"),
    [
        (cancel_task, "succeeded", "A task that is succeeded cannot be cancelled. It is over"),
        (cancel_task, "cancelled", "A task that is cancelled cannot be cancelled."),
        (pause_task, "queued", "A task that is queued cannot be paused. Only a running task can"),
        (pause_task, "paused", "A task that is paused cannot be paused."),
        (resume_task, "running", "A task that is running cannot be resumed. Only a paused task"),
        (resume_task, "failed", "A task that is failed cannot be resumed."),
    ],
)
def test_a_wrong_state_is_a_conflict(
    make_task: Any, alice: Any, verb: Any, state: str, message: str
) -> None:
    task = make_task(state=state)
    with pytest.raises(ConflictError, match=message):
        verb(task, alice)
    task.refresh_from_db()
    assert task.state == state


@pytest.mark.parametrize("verb", [cancel_task, pause_task, resume_task])
def test_viewers_and_strangers_may_not_move_a_task(
    task: Task, acme: Any, make_user: Any, mallory: Any, verb: Any
) -> None:
    viewer = make_user("vera", acme, Member.Role.VIEWER)
    for user in (viewer, mallory):
        with pytest.raises(PermissionDenied):
            verb(task, user)


def test_quota_use_has_numbers_limits_and_units(make_task: Any, acme: Any, umbrella: Any) -> None:
    for state in ("queued", "queued", "running", "paused", "succeeded"):
        make_task(state=state)
    now = timezone.now()
    TokenUsage.objects.create(tenant=acme, day=now.date(), tokens=70)
    TokenUsage.objects.create(tenant=acme, day=now.date() - timedelta(days=1), tokens=9)
    TokenUsage.objects.create(tenant=umbrella, day=now.date(), tokens=5)
    assert quota_use(acme) == {
        "concurrent_tasks": {"used": 2, "limit": 2, "unit": "tasks"},
        "queued_tasks": {"used": 2, "limit": None, "unit": "tasks"},
        "tokens_today": {"used": 70, "limit": None, "unit": "tokens since 0:00 UTC"},
        "step_tokens": {"used": None, "limit": 4_194_304, "unit": "tokens of one training step"},
        "stored_mib": {"used": 0, "limit": 20_480, "unit": "MiB"},
        "lora_rank": {"used": None, "limit": 64, "unit": "rank of one adapter"},
    }


def test_a_dataset_in_use_cannot_vanish_under_its_task(task: Task) -> None:
    with pytest.raises(Exception, match="protected"):
        Dataset.objects.all().delete()


def test_a_priority_is_submitted_cloned_and_changed_while_the_task_waits_or_runs(
    submit: Any, alice: Any
) -> None:
    task = submit(priority="3")
    assert task.priority == 3
    assert clone_task(task, alice, {}).priority == 3
    assert clone_task(task, alice, {"priority": -10}).priority == -10
    Task.objects.filter(pk=task.pk).update(state="running")
    set_priority(task, alice, 7)
    task.refresh_from_db()
    assert task.priority == 7
    lines = StreamEvent.objects.filter(stream=task.stream, kind="log")
    assert lines.last().data["text"] == f"Priority 7, set by {alice}."
    assert StreamEvent.objects.filter(stream=task.stream, kind="state").last().data["priority"] == 7


@pytest.mark.parametrize("value", [11, -11, 1.5, "high", None, True, 10**400])
def test_a_priority_out_of_range_is_refused(submit: Any, alice: Any, value: Any) -> None:
    assert list(wrong_fields(submit, priority=value)) == ["priority"]
    with pytest.raises(SpecError):
        set_priority(submit(), alice, value)


def test_a_task_that_is_over_or_of_others_gets_no_other_priority(
    submit: Any, alice: Any, mallory: Any
) -> None:
    task = submit()
    with pytest.raises(PermissionDenied):
        set_priority(task, mallory, 1)
    cancel_task(task, alice)
    with pytest.raises(ConflictError, match="cancelled cannot be given another priority"):
        set_priority(task, alice, 1)
    task.refresh_from_db()
    assert task.priority == 0


def test_a_submission_that_is_repeated_after_its_priority_changed_is_the_same(
    submit: Any, alice: Any
) -> None:
    task = submit(idempotency_key="k", priority=1)
    set_priority(task, alice, 5)
    assert submit(idempotency_key="k", priority=1) == task
