"""Only the pass with the newest fence commits, and a version is committed once."""

from typing import Any

import pytest

from engine.manager.leases import pass_loss
from engine.manager.snapshot import Snapshot, StepView, WorkerView
from jobs.models import PolicyVersion, Span, Step
from jobs.services import lifecycle, passes

pytestmark = pytest.mark.django_db


@pytest.fixture
def step(task: Any) -> Step:
    """Step 0 of a running task, dispatched to train under fence 1."""
    task.state = "running"
    task.save()
    PolicyVersion.objects.create(task=task, number=0, digest="d0", key="k0")
    return Step.objects.create(task=task, number=0, state="training", fence=1, ready_order=3)


def _take(step: Step, fence: int = 1, holder: str = "a") -> passes.Pass:
    taken = passes.take_pass(step.pk, fence, holder, "training-1")
    assert taken
    return taken


def test_a_pass_commits_the_next_version(step: Step) -> None:
    assert passes.commit_version(_take(step), "d1", "k1", 10, {"reward": 0.5, "tokens": 7})
    step.refresh_from_db()
    version = PolicyVersion.objects.get(task=step.task, number=1)
    assert (step.state, step.metrics["reward"], version.digest) == ("committed", 0.5, "d1")
    span = Span.objects.get()
    assert (span.stage, span.tokens) == ("training", 7)
    assert span.ended_at >= span.started_at


def test_a_pass_is_taken_by_one_worker_only(step: Step) -> None:
    _take(step)
    assert passes.take_pass(step.pk, 1, "b", "training-2") is None


def test_a_dispatch_under_an_old_fence_is_not_taken(step: Step) -> None:
    Step.objects.filter(pk=step.pk).update(fence=2)
    assert passes.take_pass(step.pk, 1, "a", "training-1") is None


def test_a_pass_that_lost_its_fence_cannot_commit(step: Step) -> None:
    slow = _take(step)
    Step.objects.filter(pk=step.pk).update(fence=2, holder="")
    quick = _take(step, fence=2, holder="b")
    assert passes.commit_version(quick, "d1", "k1", 10, {})
    assert not passes.commit_version(slow, "other", "k2", 10, {})
    assert PolicyVersion.objects.get(task=step.task, number=1).digest == "d1"


def test_a_pass_of_a_cancelled_task_cannot_commit(step: Step) -> None:
    taken = _take(step)
    assert lifecycle.end_task(step.task_id, "cancelled", "by alice", from_states=["running"])
    assert not passes.commit_version(taken, "d1", "k1", 10, {})
    assert PolicyVersion.objects.count() == 1


def test_a_failed_pass_gives_the_step_back_to_its_place_in_the_queue(step: Step) -> None:
    assert passes.fail_pass(_take(step), "loss is not finite")
    step.refresh_from_db()
    assert (step.state, step.ready_order, step.errors) == ("ready", 3, 1)
    assert step.last_error == "loss is not finite"


def test_a_pass_that_could_not_commit_leaves_no_span_that_goes_on(step: Step) -> None:
    taken = _take(step)
    Step.objects.filter(pk=step.pk).update(fence=2, holder="")
    assert not passes.commit_version(taken, "d1", "k1", 10, {})
    assert Span.objects.get().ended_at


def test_a_pass_of_a_task_that_was_cancelled_meanwhile_is_not_taken(step: Step) -> None:
    assert lifecycle.end_task(step.task_id, "cancelled", "by alice", from_states=["running"])
    assert passes.take_pass(step.pk, 1, "a", "training-1") is None
    assert not Span.objects.exists()


def test_what_a_worker_seems_to_train_and_does_not_is_given_up(step: Step) -> None:
    _take(step)
    assert passes.disown("a", (step.pk, 1)) == 0
    assert passes.disown("another", None) == 0
    assert passes.disown("a", None) == 1
    step.refresh_from_db()
    assert (step.state, step.holder) == ("training", passes.NOBODY)


def test_a_pass_that_was_given_up_is_dispatched_again(step: Step) -> None:
    _take(step)
    passes.disown("a", None)
    step.refresh_from_db()
    view = StepView(step.number, step.state, fence=step.fence, holder=step.holder)
    trainer = WorkerView("a", "training", "training", ("tiny",), 0.0, 1.0)
    assert pass_loss(view, "tiny", Snapshot(now=1.0), {"a": trainer})


def test_an_error_with_characters_that_postgresql_refuses_is_told_without_them(step: Step) -> None:
    assert passes.fail_pass(_take(step), "bad \0 byte")
    step.refresh_from_db()
    assert step.last_error == "bad  byte"


def test_versions_at_the_checkpoint_interval_and_the_last_are_kept(make_task: Any) -> None:
    task = make_task(config={"checkpoint_interval": 4, "max_steps": 6})
    kept = [number for number in range(1, 7) if passes.is_checkpoint(task, number)]
    assert kept == [4, 6]


def test_a_pass_knows_the_version_that_generated_its_batch(step: Step) -> None:
    PolicyVersion.objects.create(task=step.task, number=1, digest="d1", key="k1")
    Step.objects.filter(pk=step.pk).update(number=1, policy_version=0)
    step.refresh_from_db()
    policy = passes.policy_of(step)
    assert (policy.task, policy.version, policy.digest) == (str(step.task_id), 0, "d0")
    step.policy_version = None
    assert passes.policy_of(step).digest == "d1"
