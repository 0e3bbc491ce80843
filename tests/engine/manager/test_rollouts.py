"""Which groups are dispatched, in which order, and how many."""

from __future__ import annotations

import pytest

from engine.manager import plan
from engine.manager.snapshot import DispatchGroup, GroupView, TaskView, Whereabouts

from .snapshots import (
    ENVIRONMENT,
    NOW,
    ROLLOUT,
    dispatched,
    open_step,
    snapshot,
    task,
    tenant,
    waiting,
    worker,
)

LOST = {"whereabouts": (Whereabouts("worker:r#0", NOW - 1, 4),)}
STOPPED = "the worker that held it stopped"


def sent(*tasks: TaskView, **fields: object) -> list[DispatchGroup]:
    commands = plan(snapshot(*tasks, **fields))
    return [command for command in commands if isinstance(command, DispatchGroup)]


def ids(*tasks: TaskView, **fields: object) -> list[str]:
    return [command.group for command in sent(*tasks, **fields)]


def waiting_groups(name: str, count: int) -> list[GroupView]:
    return [waiting(f"{name}{index}", index) for index in range(count)]


def test_a_waiting_group_is_dispatched_with_its_cost_and_virtual_time() -> None:
    tenants = (tenant(weight=2.0, virtual_time=30.0),)
    step = open_step(waiting("g"), number=3)
    assert sent(task(step=step, version=3), tenants=tenants) == [
        DispatchGroup(
            "t1", 3, "g", 1, cost=100.0, virtual_time=80.0, task_virtual_time=100.0, last_start=30.0
        )
    ]


def test_in_flight_is_bounded_by_one_and_a_half_times_the_slots() -> None:
    """8 slots: 12 sequences, 3 groups of 4."""
    assert ids(task(step=open_step(*waiting_groups("g", 5)))) == ["g0", "g1", "g2"]


def test_what_is_in_flight_counts_only_its_unfinished_trajectories() -> None:
    """4 at the worker and 1 left of each of two groups leave room for 6 of 12: one group of 4."""
    last = (Whereabouts("worker:r#1", NOW - 1, 1),)
    almost = [dispatched("b", 1, whereabouts=last), dispatched("c", 2, whereabouts=last)]
    step = open_step(dispatched("a"), *almost, *waiting_groups("g", 3))
    assert ids(task(step=step)) == ["g0"]


def test_a_trajectory_that_waits_for_a_tool_takes_no_sequence() -> None:
    """12 of 8 slots' worth are away: 3 groups of 4 may go beside them."""
    places = ("worker:e#1", "queue:environment", "worker:e#1")
    away = [
        dispatched(name, index, whereabouts=(Whereabouts(place, NOW - 1, 4),))
        for index, (name, place) in enumerate(zip("abc", places, strict=True))
    ]
    step = open_step(*away, *waiting_groups("g", 5))
    assert ids(task(step=step), workers=(ROLLOUT, ENVIRONMENT)) == ["g0", "g1", "g2"]


def test_eight_times_the_slots_may_be_in_flight_with_all_that_wait_for_tools() -> None:
    """8 slots: 64 sequences, of which 60 are away: one more group of 4."""
    away = dispatched("a", whereabouts=(Whereabouts("worker:e#1", NOW - 1, 60),))
    one = task("t2", step=open_step(away), group_size=60)
    other = task(step=open_step(*waiting_groups("g", 3)))
    assert ids(one, other, workers=(ROLLOUT, ENVIRONMENT)) == ["g0"]


def test_a_group_just_dispatched_counts_whole_before_redis_knows_of_it() -> None:
    unseen = [dispatched(name, whereabouts=(), dispatched_at=NOW) for name in "abc"]
    assert ids(task(step=open_step(*unseen, waiting("g", 3)))) == []


def test_slots_of_all_living_workers_of_the_base_model_count() -> None:
    """8 + 4 slots: 18 sequences, 4 groups of 4; the dead and the foreign one count nothing."""
    workers = (
        ROLLOUT,
        worker("s#1", "rollout", slots=4),
        worker("dead#1", "rollout", slots=64, last_beat_at=NOW - 11),
        worker("other#1", "rollout", slots=64, base_models=("qwen",)),
        worker("e#1", "environment", slots=64),
    )
    assert len(ids(task(step=open_step(*waiting_groups("g", 9))), workers=workers)) == 4


def test_without_a_rollout_worker_nothing_is_dispatched() -> None:
    assert ids(task(step=open_step(waiting("g"))), workers=(ENVIRONMENT,)) == []


def test_groups_go_only_where_their_base_model_is_served() -> None:
    here = task("here", step=open_step(waiting("g")))
    there = task("there", base_model="qwen", step=open_step(waiting("h")))
    assert ids(here, there) == ["g"]
    qwen = worker("q#1", "rollout", slots=4, base_models=("qwen",))
    assert sorted(ids(here, there, workers=(ROLLOUT, qwen))) == ["g", "h"]


def test_a_group_larger_than_the_bound_goes_alone() -> None:
    huge = task(group_size=64, step=open_step(*waiting_groups("g", 2)))
    assert ids(huge) == ["g0"]


def test_no_smaller_group_passes_one_that_does_not_fit() -> None:
    """Else the large one would wait for ever. 4 of 12 are in flight."""
    busy = task("busy", step=open_step(dispatched("a")))
    huge = task("huge", tenant="big", group_size=64, step=open_step(waiting("h")))
    small = task("small", tenant="tiny", step=open_step(waiting("s")))
    tenants = (tenant(), tenant("big", virtual_time=0.0), tenant("tiny", virtual_time=50.0))
    assert ids(busy, huge, small, tenants=tenants) == []


def test_a_lost_group_is_dispatched_again_with_a_cause_and_for_nothing() -> None:
    tenants = (tenant(virtual_time=500.0),)
    lost = dispatched("g", attempt=2, **LOST)
    assert sent(task(virtual_time=7.0, step=open_step(lost)), tenants=tenants) == [
        DispatchGroup(
            "t1",
            0,
            "g",
            attempt=3,
            cost=0.0,
            virtual_time=500.0,
            task_virtual_time=7.0,
            cause=STOPPED,
        )
    ]


def test_lost_groups_go_before_waiting_ones_oldest_first() -> None:
    groups = [
        waiting("w", 0),
        dispatched("young", 1, dispatched_at=NOW - 20, **LOST),
        dispatched("old", 2, dispatched_at=NOW - 40, **LOST),
    ]
    assert ids(task(step=open_step(*groups))) == ["old", "young", "w"]


def test_a_lost_group_that_goes_again_takes_no_turn_from_its_task() -> None:
    """Both lie so far behind that they are raised; the first still lay behind the second."""
    ahead = task("c", virtual_time=1_000.0, last_start=1_000.0)
    first = task("a", virtual_time=1.0, step=open_step(dispatched("l", **LOST), waiting("a0", 1)))
    second = task("b", virtual_time=2.0, step=open_step(waiting("b0"), waiting("b1", 1)))
    assert ids(ahead, first, second) == ["l", "a0", "b0"]


def test_lost_groups_keep_to_the_bound_and_their_old_attempt_does_not_count() -> None:
    """Room for 3 groups: one lives, so 2 of the 3 lost ones go, and no waiting one."""
    lost = [dispatched(f"l{i}", i, dispatched_at=NOW - 30 + i, **LOST) for i in range(3)]
    step = open_step(*lost, dispatched("alive", 3), waiting("w", 4))
    assert ids(task(step=step)) == ["l0", "l1"]


def test_no_other_lost_or_waiting_group_passes_a_lost_one_that_does_not_fit() -> None:
    busy = task("busy", step=open_step(dispatched("a")))
    huge = task("huge", group_size=64, step=open_step(dispatched("h", **LOST)))
    young = dispatched("y", dispatched_at=NOW - 0.5, **LOST)
    small = task("small", step=open_step(young, waiting("w", 1)))
    assert ids(busy, huge, small) == []
    assert ids(huge, small) == ["h"]


def test_a_tenant_is_caught_up_with_by_the_cost_of_its_largest_step() -> None:
    """far was served last at 1000, and of a step that cost 600 and began at 400: near starts
    there."""
    far = [task("f1", tenant="far", group_cost=300), task("f2", tenant="far", group_cost=10)]
    near = task("n", tenant="near", step=open_step(waiting("g")))
    tenants = (tenant("far", virtual_time=1300.0, last_start=1000.0), tenant("near"))
    assert [c.virtual_time for c in sent(*far, near, tenants=tenants)] == [500.0]


def test_a_group_that_came_back_with_an_error_is_paid_for_again() -> None:
    failed = waiting("g", attempt=1, errors=1, last_error="out of memory")
    (command,) = sent(task(step=open_step(failed)))
    assert (command.attempt, command.cost) == (2, 100)
    assert command.cause == "attempt 1 failed: out of memory"


@pytest.mark.parametrize("fields", [{"state": "paused"}, {"tenant": "suspended"}])
def test_nothing_is_dispatched_for_paused_tasks_and_suspended_tenants(
    fields: dict[str, str],
) -> None:
    step = open_step(waiting("g"), dispatched("l", 1, **LOST))
    tenants = (tenant(), tenant("suspended", is_suspended=True))
    assert ids(task(step=step, **fields), tenants=tenants) == []


def test_groups_of_a_paused_task_still_fill_the_slots() -> None:
    """8 of 12 are in flight for the paused task: room for one group."""
    paused = task("p", state="paused", step=open_step(dispatched("a"), dispatched("b", 1)))
    running = task("r", step=open_step(*waiting_groups("g", 3)))
    assert ids(paused, running) == ["g0"]


def test_within_a_tenant_the_task_that_has_had_least_goes_first() -> None:
    """a's last group began at 150, its step at 150 - 100: b is raised to that, goes, and stands
    level."""
    step = open_step(dispatched("x"), waiting("a1", 1))
    busy = task("a", virtual_time=150.0, last_start=150.0, batch_size=1, step=step)
    idle = task("b", batch_size=1, step=open_step(*waiting_groups("b", 2)))
    assert ids(busy, idle) == ["b0", "a1"]
