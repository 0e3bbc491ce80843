"""Admission, preparation, opening of steps and endings."""

from __future__ import annotations

from dataclasses import replace

import pytest

from engine.manager import plan
from engine.manager.snapshot import Admit, Command, End, OpenStep, Prepare, TaskView

from .snapshots import (
    NOW,
    dispatched,
    open_step,
    ready_step,
    snapshot,
    task,
    tenant,
    training_step,
    waiting,
)


def decided(kind: type, *tasks: TaskView, **fields: object) -> list[Command]:
    return [command for command in plan(snapshot(*tasks, **fields)) if isinstance(command, kind)]


def queued(id: str, submitted_at: float, **fields: object) -> TaskView:
    return task(id, state="queued", submitted_at=submitted_at, version=-1, **fields)


def test_queued_tasks_are_admitted_in_order_of_submission_up_to_the_quota() -> None:
    tasks = [queued("b", 2.0), queued("a", 3.0), queued("c", 1.0)]
    found = decided(Admit, *tasks, tenants=(tenant(max_concurrent_tasks=2),))
    assert found == [Admit("c"), Admit("b")]


def test_the_higher_priority_is_admitted_first_and_ten_minutes_of_waiting_are_worth_one() -> None:
    """b has waited 500 s longer than c, a 700 s longer; c's priority is one higher."""
    tasks = [queued("c", 1000.0, priority=1), queued("a", 300.0), queued("b", 500.0)]
    found = decided(Admit, *tasks, tenants=(tenant(max_concurrent_tasks=2),))
    assert found == [Admit("a"), Admit("c")]
    urgent = [*tasks, queued("last", 2000.0, priority=10)]
    found = decided(Admit, *urgent, tenants=(tenant(max_concurrent_tasks=1),))
    assert found == [Admit("last")]


def test_a_changed_priority_changes_who_is_admitted() -> None:
    tenants = (tenant(max_concurrent_tasks=1),)
    first, second = queued("first", 1.0), queued("second", 2.0)
    assert decided(Admit, first, second, tenants=tenants) == [Admit("first")]
    raised = replace(second, priority=1)
    assert decided(Admit, first, raised, tenants=tenants) == [Admit("second")]
    theirs = queued("theirs", 3.0, tenant="zeta", priority=-10)
    both = (*tenants, tenant("zeta", max_concurrent_tasks=1))
    assert decided(Admit, first, raised, theirs, tenants=both) == [Admit("second"), Admit("theirs")]


def test_running_and_paused_tasks_count_against_the_quota() -> None:
    tasks = [task("run"), task("rest", state="paused"), queued("next", 5.0)]
    assert decided(Admit, *tasks, tenants=(tenant(max_concurrent_tasks=2),)) == []
    assert decided(Admit, *tasks, tenants=(tenant(max_concurrent_tasks=3),)) == [Admit("next")]


def test_no_limit_admits_everybody() -> None:
    tasks = [queued(f"t{i}", i) for i in range(5)]
    assert len(decided(Admit, *tasks, tenants=(tenant(max_concurrent_tasks=0),))) == 5


def test_a_tenant_at_its_limit_holds_up_nobody_else() -> None:
    tasks = [task("run"), queued("mine", 2.0), queued("theirs", 3.0, tenant="zeta")]
    tenants = (tenant(max_concurrent_tasks=1), tenant("zeta", max_concurrent_tasks=1))
    assert decided(Admit, *tasks, tenants=tenants) == [Admit("theirs")]


def test_a_suspended_tenant_is_not_admitted() -> None:
    assert decided(Admit, queued("a", 1.0), tenants=(tenant(is_suspended=True),)) == []


def test_an_unprepared_task_is_prepared() -> None:
    assert decided(Prepare, task(version=-1)) == [Prepare("t1")]


def test_preparation_is_asked_for_again_after_30_seconds_only() -> None:
    assert decided(Prepare, task(version=-1, prepare_sent_at=NOW - 29.9)) == []
    assert decided(Prepare, task(version=-1, prepare_sent_at=NOW - 30)) == [Prepare("t1")]


def test_an_impossible_preparation_fails_the_task_with_its_reason() -> None:
    broken = task(version=-1, prepare_error="Row 3 has no answer.")
    assert decided(End, broken) == [End("t1", "failed", "Row 3 has no answer.")]
    assert decided(Prepare, broken) == []


def test_the_next_step_is_opened_at_the_last_version() -> None:
    assert decided(OpenStep, task(version=7)) == [OpenStep("t1", 7, version=7)]


@pytest.mark.parametrize("step", [open_step(waiting("g")), ready_step(1), training_step()])
def test_a_task_with_a_step_gets_no_second_one(step: object) -> None:
    assert decided(OpenStep, task(step=step)) == []


def test_no_step_is_opened_before_version_0() -> None:
    assert decided(OpenStep, task(version=-1)) == []


@pytest.mark.parametrize(("used", "num_opened"), [(999, 1), (1000, 0), (1200, 0)])
def test_the_daily_token_quota_keeps_steps_from_opening(used: int, num_opened: int) -> None:
    tenants = (tenant(tokens_per_day=1000, tokens_today=used),)
    assert len(decided(OpenStep, task(), tenants=tenants)) == num_opened


@pytest.mark.parametrize(
    "fields", [{"state": "paused"}, {"tenant": "suspended"}, {"tenant": "unheard of"}]
)
@pytest.mark.parametrize("version", [-1, 0])
def test_nothing_is_begun_for_paused_tasks_and_suspended_tenants(
    fields: dict[str, str], version: int
) -> None:
    tenants = (tenant(), tenant("suspended", is_suspended=True))
    held = task(version=version, **fields)
    assert decided((Prepare, OpenStep), held, tenants=tenants) == []  # type: ignore[arg-type]


def test_a_task_with_all_its_versions_succeeds_whatever_its_quota() -> None:
    tenants = (tenant(tokens_per_day=1, tokens_today=5),)
    found = decided(End, task(version=40), tenants=tenants)
    assert found == [End("t1", "succeeded", "all 40 steps are done")]
    assert decided(OpenStep, task(version=40)) == []


def test_a_group_that_failed_three_times_fails_its_task_and_no_other() -> None:
    bad = task("bad", step=open_step(waiting("g", attempt=3, errors=3, last_error="no GPU")))
    almost = task("ok", step=open_step(waiting("h", attempt=2, errors=2, last_error="no GPU")))
    assert decided(End, bad, almost) == [End("bad", "failed", "no GPU")]


def test_a_step_whose_training_failed_three_times_fails_its_task() -> None:
    bad = task("bad", step=ready_step(1, errors=3, last_error="loss is not finite"))
    ok = task("ok", step=ready_step(2, errors=2, last_error="loss is not finite"))
    assert decided(End, bad, ok) == [End("bad", "failed", "loss is not finite")]


def test_work_that_its_workers_lose_again_and_again_fails_its_task() -> None:
    poison = task("a", step=open_step(dispatched("g", attempt=21, whereabouts=())))
    unlucky = task("b", step=open_step(dispatched("h", attempt=20, whereabouts=())))
    heavy = task("c", step=ready_step(1, fence=21))
    assert decided(End, poison, unlucky, heavy) == [
        End("a", "failed", "group 1 was lost by its workers 20 times"),
        End("c", "failed", "step 1 was lost by its trainer 20 times"),
    ]


def test_a_task_that_ends_gets_no_other_command() -> None:
    groups = [
        waiting("g", attempt=3, errors=3, last_error="no GPU"),
        waiting("h", 1),
        dispatched("i", 2, whereabouts=(), dispatched_at=NOW - 60),
    ]
    assert [type(c) for c in plan(snapshot(task(step=open_step(*groups))))] == [End]


def test_a_paused_task_does_not_end_until_it_is_resumed() -> None:
    assert decided(End, task(state="paused", version=40)) == []
