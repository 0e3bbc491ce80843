"""What a step was charged is settled once, by hand-computed device-seconds."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from engine.manager.snapshot import DispatchGroup
from jobs.models import Group, PolicyVersion, Step, Task, Tenant
from jobs.services import charges, groups, passes, sendings
from tests.jobs.trajectories import trajectory

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("redis")]


@pytest.fixture
def step(task: Task) -> Step:
    """Of two groups, for a tenant of weight 2 whose passes are known to take 4 s."""
    Task.objects.update(state="running", pass_s=4.0)
    Tenant.objects.filter(pk=task.tenant_id).update(weight=2.0)
    PolicyVersion.objects.create(task=task, number=0, digest="d0", key="k0")
    step = Step.objects.create(task=task, number=0)
    for index in range(2):
        Group.objects.create(step=step, index=index, prompt_index=0)
    return step


def _send(step: Step, *, cost: float = 10.0, cause: str = "") -> None:
    """Dispatch all groups of the step, from where its tenant and task stand."""
    tenant = Tenant.objects.get(tasks=step.task_id)
    tenant_time, task_time = tenant.virtual_time, Task.objects.get().virtual_time
    commands = []
    for number, group in enumerate(step.groups.all(), start=1):
        commands.append(
            DispatchGroup(
                str(step.task_id),
                step.number,
                str(group.pk),
                group.attempt + 1,
                cost=cost,
                virtual_time=tenant_time + number * cost / 2,
                task_virtual_time=task_time + number * cost,
                cause=cause,
                last_start=tenant_time + (number - 1) * cost / 2,
                task_last_start=task_time + (number - 1) * cost,
            )
        )
    sendings.send_groups(commands, fail=_unexpected)


def _unexpected(command: DispatchGroup, error: Exception) -> None:
    raise error


def _finish(step: Step, device_s: float) -> None:
    """Each group's two trajectories took half of that each."""
    for group in step.groups.all():
        found = [trajectory(group.pk, i, attempt=group.attempt) for i in range(2)]
        found = [
            replace(t, turns=tuple(replace(turn, device_s=device_s / 2) for turn in t.turns))
            for t in found
        ]
        assert groups.finish_group(str(group.pk), group.attempt, found, "environment-1")


def _times() -> tuple[float, float]:
    """Of the tenant and of the task."""
    task = Task.objects.select_related("tenant").get()
    return task.tenant.virtual_time, task.virtual_time


def test_a_step_that_took_more_than_it_was_charged_is_charged_the_rest(step: Step) -> None:
    """Charged 20; took 2 x 50 and a pass of 4: 84 more, 42 for a tenant of weight 2."""
    _send(step)
    assert _times() == (10.0, 20.0)
    _finish(step, device_s=50.0)
    assert _times() == pytest.approx((52.0, 104.0))
    step.refresh_from_db()
    assert (step.state, step.charged_s) == ("ready", pytest.approx(104.0))


def test_a_step_that_took_less_gets_the_rest_back(step: Step) -> None:
    """Charged 20; took 2 x 3 and a pass of 4: 10 back."""
    _send(step)
    _finish(step, device_s=3.0)
    assert _times() == pytest.approx((5.0, 10.0))


def test_where_it_was_last_served_from_stays_as_it_was(step: Step) -> None:
    _send(step)
    _finish(step, device_s=50.0)
    task = Task.objects.select_related("tenant").get()
    assert (task.tenant.last_start, task.last_start) == (5.0, 10.0)


def test_nothing_is_settled_before_the_last_group(step: Step) -> None:
    _send(step)
    group = step.groups.first()
    assert group
    assert groups.finish_group(
        str(group.pk), 1, [trajectory(group.pk, i) for i in range(2)], "environment-1"
    )
    assert _times() == (10.0, 20.0)


def test_settling_again_what_is_settled_moves_nothing(step: Step) -> None:
    _send(step)
    _finish(step, device_s=50.0)
    charges.settle_rollout(step)
    assert _times() == pytest.approx((52.0, 104.0))


def test_a_step_that_is_made_ready_twice_is_settled_once(step: Step) -> None:
    """As when its second pass begins after the first one raised."""
    _send(step)
    _finish(step, device_s=50.0)
    groups._close_step_if_full(step)
    taken = _taken(step)
    passes.fail_pass(taken, "out of memory")
    groups._close_step_if_full(step)
    assert _times() == pytest.approx((52.0, 104.0))


def test_a_pass_is_settled_when_it_commits(step: Step) -> None:
    """14 s, 10 more than expected."""
    _send(step)
    _finish(step, device_s=50.0)
    taken = _taken(step)
    charges.settle_pass(taken.step, 14.0)
    charges.settle_pass(taken.step, 14.0)
    assert _times() == pytest.approx((57.0, 114.0))


def test_a_committed_pass_is_charged_by_the_clock(step: Step) -> None:
    _send(step)
    _finish(step, device_s=50.0)
    taken = _taken(step)
    assert passes.commit_version(taken, "d1", "k1", 1, {})
    pass_s = (taken.span.ended_at - taken.span.started_at).total_seconds()
    assert _times() == pytest.approx((50.0 + pass_s / 2, 100.0 + pass_s))


def _taken(step: Step) -> Any:
    Step.objects.filter(pk=step.pk).update(state="training", fence=1, holder="")
    return passes.take_pass(step.pk, 1, "a", "training-1")


def test_a_lost_group_that_is_sent_again_is_settled_as_though_it_had_not_been(step: Step) -> None:
    _send(step)
    _send(step, cost=0.0, cause="its worker stopped")
    _finish(step, device_s=50.0)
    assert _times() == pytest.approx((52.0, 104.0))


def test_what_attempts_that_failed_were_charged_is_not_given_back(step: Step) -> None:
    """Each was charged 10 twice; the second time stays: 20 more than what is known."""
    _send(step)
    for group in step.groups.all():
        groups.return_group(str(group.pk), 1, "out of memory")
    _send(step, cause="attempt 1 failed: out of memory")
    _finish(step, device_s=50.0)
    assert _times() == pytest.approx((62.0, 124.0))


def test_a_first_pass_is_expected_to_take_what_those_of_the_base_model_do(
    step: Step, make_task: Callable[..., Task]
) -> None:
    """Of 8 s: charged 20, took 6, so 6 back."""
    make_task("other", state="running", pass_s=8.0)
    Task.objects.filter(pk=step.task_id).update(pass_s=0.0)
    tenant = Tenant.objects.get(tasks=step.task_id)
    Step.objects.filter(pk=step.pk).update(charged_s=20.0, device_s=6.0)
    charges.settle_rollout(step)
    tenant.refresh_from_db()
    assert tenant.virtual_time == pytest.approx(-3.0)


@pytest.mark.parametrize("fields", [{"device_s": 0.0}, {"charged_s": 0.0}])
def test_nothing_is_settled_where_either_is_not_known(step: Step, fields: dict[str, float]) -> None:
    Step.objects.update(**{"charged_s": 20.0, "device_s": 100.0, **fields})
    charges.settle_rollout(step)
    assert _times() == (0.0, 0.0)
