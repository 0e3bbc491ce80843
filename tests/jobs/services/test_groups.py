"""A finished group is stored once, and only if it is of its step's version."""

from typing import Any

import pytest

from engine.errors import ArtifactError
from jobs import artifacts
from jobs.models import Group, PolicyVersion, Span, Step, StreamEvent, TokenUsage
from jobs.services import groups, joins
from jobs.services.lifecycle import end_task
from jobs.services.payloads import read_group, write_group
from tests.jobs.trajectories import trajectory

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("redis")]


@pytest.fixture
def step(task: Any) -> Step:
    """Step 0 of a running task, with two dispatched groups."""
    task.state = "running"
    task.save()
    PolicyVersion.objects.create(task=task, number=0, digest="d0", key="k0")
    step = Step.objects.create(task=task, number=0)
    for index in range(2):
        Group.objects.create(step=step, index=index, prompt_index=0, state="dispatched", attempt=1)
    return step


def _finish(group: Group, *, attempt: int = 1, **fields: Any) -> bool:
    found = [trajectory(group.pk, i, attempt=attempt, **fields) for i in range(2)]
    return groups.finish_group(str(group.pk), attempt, found, "environment-1")


def test_a_finished_group_can_be_read_back(step: Step) -> None:
    group = step.groups.first()
    assert _finish(group)
    group.refresh_from_db()
    assert group.state == "finished"
    assert group.rewards == [1.0, 1.0]
    assert group.num_tokens == 2 + 3 + 3  # the prompt counts once
    assert read_group(group) == [trajectory(group.pk, 0), trajectory(group.pk, 1)]


def test_finishing_twice_changes_nothing(step: Step) -> None:
    group = step.groups.first()
    assert _finish(group)
    assert not _finish(group)
    step.refresh_from_db()
    assert step.num_late == 1
    assert TokenUsage.objects.get().tokens == 8


def test_a_late_attempt_is_dropped_and_counted(step: Step) -> None:
    group = step.groups.first()
    Group.objects.filter(pk=group.pk).update(attempt=2)
    assert not _finish(group, attempt=1)
    step.refresh_from_db()
    group.refresh_from_db()
    assert (step.num_late, group.state) == (1, "dispatched")


def test_a_payload_that_lost_to_an_end_of_its_task_is_not_left_behind(
    step: Step, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[str] = []

    def write(group: Group, found: list[Any]) -> str:
        written.append(write_group(group, found))
        end_task(step.task_id, "cancelled", "by alice", from_states=["running"])
        return written[-1]

    monkeypatch.setattr(groups, "write_group", write)
    assert not _finish(step.groups.first())
    with pytest.raises(ArtifactError):
        artifacts.read(written[0])
    step.refresh_from_db()
    assert step.num_late == 1


@pytest.mark.parametrize("wrong", [{"digest": "d1"}, {"version": 1}])
def test_trajectories_of_another_version_are_refused(step: Step, wrong: dict[str, Any]) -> None:
    group = step.groups.first()
    assert not _finish(group, **wrong)
    step.refresh_from_db()
    group.refresh_from_db()
    assert step.num_refused == 2
    assert (group.state, group.errors) == ("waiting", 1)
    assert "another adapter" in group.last_error


def test_a_step_is_ready_when_its_last_group_is_finished_in_order_of_readiness(
    step: Step, make_task: Any
) -> None:
    Step.objects.create(task=make_task("other"), number=0, state="ready", ready_order=6)
    first, second = step.groups.all()
    _finish(first)
    step.refresh_from_db()
    assert (step.state, step.ready_order) == ("open", 0)
    _finish(second)
    step.refresh_from_db()
    assert (step.state, step.ready_order) == ("ready", 7)


def test_each_stage_leaves_a_span_on_both_streams(step: Step) -> None:
    _finish(step.groups.first())
    spans = {span.stage: span for span in Span.objects.all()}
    rollout, environment = spans["rollout"], spans["environment"]
    assert (rollout.ended_at - rollout.started_at).total_seconds() == 1.0
    assert (environment.ended_at - environment.started_at).total_seconds() == 0.5
    assert (rollout.worker, environment.worker) == ("rollout-1", "environment-1")
    streams = StreamEvent.objects.filter(kind="span").values_list("stream", flat=True)
    assert sorted(streams) == ["cluster"] * 2 + [step.task.stream] * 2


def test_a_group_that_redis_lost_in_part_is_let_go_by_who_would_finish_it(step: Step) -> None:
    group = step.groups.first()
    joins.open_attempt(str(group.pk), 1, 2, "worker:environment")
    found = [trajectory(group.pk, 0)]
    assert not groups.finish_group(str(group.pk), 1, found, "environment-1")
    assert joins.are_live([(str(group.pk), 1)]) == [False]  # so its lease is over
    group.refresh_from_db()
    assert (group.state, group.errors) == ("dispatched", 0)


def test_an_error_sends_the_group_back_to_wait(step: Step) -> None:
    group = step.groups.first()
    assert groups.return_group(str(group.pk), 1, "the engine broke")
    assert not groups.return_group(str(group.pk), 1, "again")
    group.refresh_from_db()
    assert (group.state, group.errors, group.last_error) == ("waiting", 1, "the engine broke")
    assert "the engine broke" in StreamEvent.objects.get(kind="log").data["text"]


def test_a_step_of_an_older_version_takes_that_ones_trajectories_and_no_newer(step: Step) -> None:
    Step.objects.filter(pk=step.pk).update(state="committed")
    PolicyVersion.objects.create(task=step.task, number=1, digest="d1", key="k1")
    stale = Step.objects.create(task=step.task, number=1, policy_version=0)
    fields = {"prompt_index": 0, "state": "dispatched", "attempt": 1}
    first, second = (Group.objects.create(step=stale, index=i, **fields) for i in range(2))
    assert _finish(first, step=1)
    assert not _finish(second, version=1, digest="d1")
    stale.refresh_from_db()
    assert (stale.num_refused, stale.state) == (2, "open")
    assert "another adapter than version 0" in Group.objects.get(pk=second.pk).last_error
    assert {t.staleness for t in read_group(Group.objects.get(pk=first.pk))} == {1}
