"""When a step begins, as far as the trainer has a say in it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from engine.manager import plan
from engine.manager.pacing import FIRST_STEPS
from engine.manager.policy import PAPER, SHIPPED, Policy
from engine.manager.priority import AGING_S
from engine.manager.snapshot import DispatchGroup, Explain, StepView, TaskView, WorkerView

from .snapshots import (
    ALL_WORKERS,
    NOW,
    TRAINER,
    dispatched,
    open_step,
    ready_step,
    snapshot,
    task,
    tenant,
    waiting,
    worker,
)

ROOMY = worker("r#1", "rollout", slots=1_000)


def costly(id: str, **fields: object) -> TaskView:
    """A pass takes 10 s, a rollout 20: half a load. 1.4 and one that waits may be under way."""
    return task(id, **{"pass_s": 10.0, "rollout_s": 20.0, **fields})


def begun(
    *tasks: TaskView, policy: Policy = SHIPPED, trainers: tuple[WorkerView, ...] = (TRAINER,)
) -> set[str]:
    view = snapshot(*tasks, workers=(ROOMY, ALL_WORKERS[1], *trainers))
    return {c.task for c in plan(view, policy) if isinstance(c, DispatchGroup)}


def under_way(count: int) -> list[TaskView]:
    return [costly(f"u{i}", step=open_step(dispatched(f"d{i}"))) for i in range(count)]


NEW = costly("new", step=open_step(waiting("n")))


@pytest.mark.parametrize(("count", "begins"), [(0, True), (3, True), (4, False)])
def test_a_step_begins_while_the_trainer_has_less_under_way_than_it_can_use(
    count: int, begins: bool
) -> None:
    """1.4 loads and a pass of half a one, so three passes and the one that begins now."""
    assert begun(*under_way(count), NEW) == ({"new"} if begins else set())


def test_steps_in_line_and_in_training_count_as_under_way() -> None:
    in_line = [costly(f"l{i}", step=ready_step(i + 1)) for i in range(6)]
    assert begun(*in_line, NEW) == set()


def test_a_second_trainer_can_use_twice_as_much() -> None:
    other = worker("s#1", "training")
    assert begun(*under_way(7), NEW, trainers=(TRAINER, other)) == {"new"}
    assert begun(*under_way(8), NEW, trainers=(TRAINER, other)) == set()


def test_a_step_once_begun_is_never_held_back() -> None:
    half = costly("half", step=open_step(dispatched("h0"), waiting("h1", 1)))
    done = costly("done", step=open_step(waiting("e1", 1), num_finished=1))
    assert begun(*under_way(9), half, done) == {"half", "done"}


def test_a_step_all_of_whose_groups_are_to_be_sent_again_is_not_held_back() -> None:
    """Later steps of its task may be ready: they fill the trainer's line and wait for this one."""
    again = open_step(waiting("a", 0, attempt=1), number=0)
    later = [replace(ready_step(order), number=order) for order in range(1, 6)]
    assert begun(costly("again", steps=(again, *later), max_staleness=5)) == {"again"}


@pytest.mark.parametrize("step", [ready_step(1), open_step(waiting("w", 1), num_finished=1)])
@pytest.mark.parametrize("cause", ["paused", "suspended"])
def test_tasks_that_may_not_go_on_hold_back_nobody(step: StepView, cause: str) -> None:
    state = "paused" if cause == "paused" else "running"
    still = [replace(costly(f"s{i}", step=step, tenant="still"), state=state) for i in range(9)]
    tenants = (tenant(), tenant("still", is_suspended=cause == "suspended"))
    view = snapshot(*still, NEW, workers=(ROOMY, *ALL_WORKERS[1:]), tenants=tenants)
    assert {c.task for c in plan(view) if isinstance(c, DispatchGroup)} == {"new"}


def test_a_task_without_costs_of_its_own_is_paced_by_those_of_others() -> None:
    fresh = task("fresh", step=open_step(waiting("f")))
    assert begun(*under_way(3), fresh) == {"fresh"}
    assert begun(*under_way(9), fresh) == set()


def test_before_any_costs_are_known_a_few_steps_begin_and_then_one_after_the_other() -> None:
    fresh = [task(f"f{i:02}", step=open_step(waiting(f"g{i}"))) for i in range(20)]
    assert len(begun(*fresh)) == FIRST_STEPS
    flying = [
        replace(view, steps=(replace(open_step(dispatched(f"d{i}")), opened_at=NOW - 12.0),))
        for i, view in enumerate(fresh[:FIRST_STEPS])
    ]
    assert len(begun(*flying, *fresh[FIRST_STEPS:])) == 2  # 12 s have passed


def test_without_a_trainer_nothing_is_paced() -> None:
    """Whoever pays attention to a trainer's line must not wait for one that is gone."""
    assert begun(*under_way(9), NEW, trainers=()) == {"new"}


def test_the_papers_schedule_is_not_paced() -> None:
    assert begun(*under_way(9), NEW, policy=PAPER) == {"new"}


def test_who_begins_next_is_decided_by_fair_order() -> None:
    had_much = costly("much", virtual_time=500.0, step=open_step(waiting("m")))
    had_little = costly("little", virtual_time=100.0, step=open_step(waiting("l")))
    assert begun(*under_way(3), had_much, had_little) == {"little"}


def test_whoever_is_held_back_keeps_back_all_who_come_after() -> None:
    """A long pass would still fit under the bound, for one may wait, but it is not its turn."""
    due = costly("due", step=open_step(waiting("d")))
    long = costly("long", pass_s=18.0, virtual_time=50.0, step=open_step(waiting("l")))
    assert begun(*under_way(4), long) == {"long"}
    assert begun(*under_way(4), due, long) == set()


def test_a_step_that_is_held_back_says_so_and_stops_nobody() -> None:
    busy = costly("busy", step=open_step(dispatched("b"), waiting("b1", 1)))
    view = snapshot(*under_way(8), NEW, busy, workers=(ROOMY, *ALL_WORKERS[1:]))
    commands = plan(view)
    assert {c.task for c in commands if isinstance(c, DispatchGroup)} == {"busy"}
    (reason,) = [c.reason for c in commands if isinstance(c, Explain) and c.task == "new"]
    assert "not begun yet: the trainer has enough steps" in reason


def test_a_step_that_is_held_back_says_how_many_of_its_own_organisations_tasks_go_first() -> None:
    """Not those of others, nor those that are paused, over or served by another base model."""
    tasks = [
        *under_way(5),
        costly("urgent", priority=5, step=ready_step(1)),
        costly("between steps", priority=3),
        costly("paused", priority=9, state="paused"),
        costly("over", priority=9, version=40),
        costly("elsewhere", priority=9, base_model="qwen"),
        costly("theirs", priority=9, tenant="zeta"),
        costly("alike", priority=1, step=open_step(waiting("a"))),
        costly("late", priority=1, step=open_step(waiting("l"))),
    ]
    view = snapshot(*tasks, tenants=(tenant(), tenant("zeta")), workers=(ROOMY, *ALL_WORKERS[1:]))
    reasons = {c.task: c.reason for c in plan(view) if isinstance(c, Explain)}
    assert reasons["late"] == (
        "step 1 of 40: 1 of 1 groups not begun yet: the trainer has enough steps before them;"
        " 2 of your tasks with higher priority go first"
    )


def test_what_has_waited_long_enough_is_not_said_to_stand_behind_a_higher_priority() -> None:
    waited = replace(open_step(waiting("o")), opened_at=NOW - AGING_S)
    tasks = [*under_way(5), costly("urgent", priority=1, step=ready_step(1))]
    view = snapshot(*tasks, costly("old", step=waited), workers=(ROOMY, *ALL_WORKERS[1:]))
    reasons = {c.task: c.reason for c in plan(view) if isinstance(c, Explain)}
    assert reasons["old"].endswith("the trainer has enough steps before them")


def test_of_a_tenant_with_time_to_spare_those_it_will_outlast_wait_sooner() -> None:
    """40 steps of 30 s are 1,200 s to go, and all have 470 s of training left: `short` is in no
    hurry. It begins while no more than a load of one and a pass are under way."""
    long = costly("long", step=open_step(dispatched("l")))
    short = costly("short", version=36, step=open_step(waiting("s"), number=36))
    last = [replace(view, version=39) for view in under_way(3)]
    assert begun(long, *last[:2], short) == {"short"}
    assert begun(long, *last, short) == set()
    tenths = [replace(view, pass_s=6.0) for view in last]  # 0.5 + 3 · 0.3, which is below 1 + 0.5
    assert begun(long, *tenths, short) == {"short"}
    more = costly("more", pass_s=6.0, version=39, step=ready_step(1))  # 1.7, below 1.4 + 0.5 only
    assert begun(long, *tenths, more, short) == set()
    assert begun(long, *tenths, more, replace(short, version=4)) == {"short"}


@pytest.mark.parametrize(("version", "begins"), [(39, False), (10, True)])
def test_how_soon_they_wait_depends_on_how_much_training_the_tenant_needs(
    version: int, begins: bool
) -> None:
    """A load of 0.5 + 2 · 0.575 = 1.65 is under way, with a pass of 0.575 in it. Of the 1,200 s
    that `long` needs training takes 463 s or 1,130 s, so the slack is one, or 1.2 · 0.94 = 1.13."""
    long = costly("long", step=open_step(dispatched("l")))
    others = [costly(f"o{i}", pass_s=11.5, version=version, step=ready_step(i)) for i in range(2)]
    short = costly("short", version=36, step=open_step(waiting("s"), number=36))
    assert begun(long, *others, short) == ({"short"} if begins else set())


def test_a_weight_of_zero_by_mistake_stops_nobody() -> None:
    tenants = (tenant(weight=0.0),)
    view = snapshot(NEW, tenants=tenants, workers=(ROOMY, *ALL_WORKERS[1:]))
    assert {c.task for c in plan(view) if isinstance(c, DispatchGroup)} == {"new"}


def test_those_with_furthest_to_go_do_not_wait_for_others_of_their_tenant() -> None:
    """A load of 1.68: more than one and a pass of half a one, less than 1.4 and such a pass."""
    under = [replace(view, pass_s=5.6, version=39) for view in under_way(6)]
    short = costly("short", version=36, step=open_step(waiting("s"), number=36))
    long = costly("long", virtual_time=500.0, step=open_step(waiting("l")))
    assert begun(*under, short) == {"short"}  # it is the furthest itself
    assert begun(*under, short, long) == {"long"}


def test_who_lets_others_of_its_tenant_pass_holds_back_no_other_tenant() -> None:
    under = [replace(view, pass_s=5.6, version=39) for view in under_way(6)]
    short = costly("short", version=36, step=open_step(waiting("s"), number=36))
    theirs = costly("theirs", tenant="zeta", step=open_step(waiting("t")))
    tenants = (tenant(), tenant("zeta", virtual_time=900.0))  # it is acme's turn
    workers = (ROOMY, *ALL_WORKERS[1:])
    view = snapshot(*under, short, costly("long"), theirs, tenants=tenants, workers=workers)
    assert {c.task for c in plan(view) if isinstance(c, DispatchGroup)} == {"theirs"}


def test_others_of_a_tenant_wait_only_for_what_is_under_way_of_its_own() -> None:
    theirs = [replace(view, pass_s=5.6, tenant="zeta") for view in under_way(6)]  # 1.68
    short = costly("short", version=36, step=open_step(waiting("s"), number=36))
    tenants = (tenant(), tenant("zeta"))
    workers = (ROOMY, *ALL_WORKERS[1:])
    view = snapshot(*theirs, short, costly("long"), tenants=tenants, workers=workers)
    assert {c.task for c in plan(view) if isinstance(c, DispatchGroup)} == {"short"}


def test_nobody_lets_others_pass_while_a_trainer_could_use_more() -> None:
    """The other tenants have a share of the trainer, and no use for it."""
    idle = [costly(f"i{i}", tenant=f"t{i}", pass_s=0.01) for i in range(9)]
    long = costly("long", pass_s=1.0, step=open_step(dispatched("l")))
    shorts = [
        costly(f"s{i}", pass_s=1.0, version=36, step=open_step(waiting(f"w{i}"), number=36))
        for i in range(9)
    ]
    tenants = (tenant(), *(tenant(f"t{i}") for i in range(9)))
    view = snapshot(long, *idle, *shorts, tenants=tenants, workers=(ROOMY, *ALL_WORKERS[1:]))
    assert len({c.task for c in plan(view) if isinstance(c, DispatchGroup)}) == 9


def test_of_two_that_go_side_by_side_the_one_a_step_ahead_lets_nobody_pass() -> None:
    """Five steps and four: near the end a step is more than a tenth of the way."""
    under = [replace(view, pass_s=5.6, version=39) for view in under_way(4)]
    behind = costly("behind", version=35, step=open_step(dispatched("b"), number=35))
    ahead = costly("ahead", version=36, step=open_step(waiting("a"), number=36))
    assert begun(*under, behind, ahead) == {"ahead"}
    assert begun(*under, behind, replace(ahead, version=37)) == set()


def test_steps_that_overlap_get_a_task_done_sooner() -> None:
    """Three that overlap keep the trainer busy for all of the time that they need."""
    longs = [costly(f"l{i}", pass_s=6.0, max_staleness=1, step=ready_step(i + 1)) for i in range(3)]
    longs = [replace(view, steps=(*view.steps, replace(ready_step(9), number=1))) for view in longs]
    short = costly("short", pass_s=6.0, version=36, step=open_step(waiting("s"), number=36))
    overlapping = begun(*longs[:2], replace(longs[2], steps=longs[2].steps[:1]), short)
    assert overlapping == {"short"}  # 1.5: no more than 1.4 and a pass of 0.3


def test_a_new_task_that_would_be_the_furthest_lets_nobody_wait_for_it() -> None:
    under = [replace(view, pass_s=5.6, version=30) for view in under_way(6)]
    middle = costly("middle", pass_s=5.6, version=30, step=open_step(waiting("m"), number=30))
    fresh = task("fresh", max_steps=10_000, step=open_step(dispatched("f")))
    assert begun(*under[:5], fresh, middle) == {"middle"}


def test_a_turn_that_is_given_away_within_a_tenant_is_not_kept_for_later() -> None:
    """Who is served meanwhile is the one furthest back, among tenants and not of its tasks."""
    under = [replace(view, pass_s=5.6, version=39) for view in under_way(6)]
    short = costly("short", version=36, step=open_step(waiting("s"), number=36))
    theirs = costly("theirs", tenant="zeta", step=open_step(waiting("t")))
    own = costly("own", pass_s=2.0, virtual_time=700.0, step=open_step(waiting("o")))
    tenants = (tenant(virtual_time=850.0), tenant("zeta", virtual_time=900.0))
    workers = (ROOMY, *ALL_WORKERS[1:])
    view = snapshot(*under, short, own, theirs, tenants=tenants, workers=workers)
    found = {c.task: c for c in plan(view) if isinstance(c, DispatchGroup)}
    assert found["own"].last_start == 850.0 and found["own"].task_last_start == 0.0
    assert found["theirs"].last_start == 900.0


def test_a_higher_priority_and_long_waiting_let_nobody_of_their_tenant_pass() -> None:
    under = [costly("long", step=open_step(dispatched("l")))]
    under += [replace(view, pass_s=5.6, version=39) for view in under_way(4)]  # 1.62
    short = costly("short", version=36, step=open_step(waiting("s"), number=36))
    assert begun(*under, short) == set()
    assert begun(*under, replace(short, priority=1)) == {"short"}
    assert (
        begun(*[replace(view, priority=1) for view in under], replace(short, priority=1)) == set()
    )
    waited = replace(open_step(waiting("s"), number=36), opened_at=NOW - AGING_S)
    assert begun(*under, replace(short, steps=(waited,))) == {"short"}


def test_a_step_that_waits_for_its_tenants_furthest_says_so() -> None:
    long = costly("long", step=open_step(dispatched("l")))
    last = [replace(view, version=39) for view in under_way(3)]
    short = costly("short", version=36, step=open_step(waiting("s"), number=36))
    view = snapshot(long, *last, short, workers=(ROOMY, *ALL_WORKERS[1:]))
    (reason,) = [c.reason for c in plan(view) if isinstance(c, Explain) and c.task == "short"]
    assert reason.endswith(
        "not begun yet: the trainer has enough steps before them; your tasks with furthest to go"
        " are let past"
    )


def test_a_task_without_costs_of_its_own_is_not_taken_for_the_furthest() -> None:
    under = [replace(view, pass_s=5.6, version=39) for view in under_way(6)]
    long = costly("long", step=ready_step(1))
    fresh = task("fresh", max_steps=40, step=open_step(waiting("f")))
    assert begun(*under[:4], long, fresh) == set()
    assert begun(*under[:4], long, replace(fresh, rollout_s=20.0, pass_s=10.0)) == {"fresh"}


def test_who_has_no_time_to_spare_hurries_all_its_tasks_alike() -> None:
    """A second tenant halves the first one's share of the trainer: 40 · 10 s and 56 · 10 s of its
    own training take longer than half of the 1,200 s that `long` needs."""
    long = costly("long", step=open_step(dispatched("l")))
    short = costly("short", version=24, step=open_step(waiting("s"), number=24))
    busy = [replace(view, pass_s=6.0, version=20) for view in under_way(4)]
    assert begun(long, *busy, short) == set()
    tenants = (tenant(), tenant("zeta", virtual_time=900.0))
    theirs = costly("theirs", tenant="zeta")
    view = snapshot(long, *busy, short, theirs, tenants=tenants, workers=(ROOMY, *ALL_WORKERS[1:]))
    assert {c.task for c in plan(view) if isinstance(c, DispatchGroup)} == {"short"}
