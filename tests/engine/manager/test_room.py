"""Free KV and adapter slots bound what is sent; whoever must wait gets its turn."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from engine.manager import plan
from engine.manager.snapshot import (
    DispatchGroup,
    Explain,
    GroupView,
    TaskView,
    TenantView,
    Whereabouts,
    WorkerView,
)

from .snapshots import (
    ENVIRONMENT,
    NOW,
    dispatched,
    open_step,
    snapshot,
    task,
    tenant,
    waiting,
    worker,
)

BEAT = NOW - 0.5  # of every worker


def engine(incarnation: str = "r#1", **fields: object) -> WorkerView:
    """Slots for far more than the tests send, so that only the rest bounds."""
    return worker(incarnation, "rollout", **{"slots": 1000, **fields})


def groups(name: str, count: int) -> list[GroupView]:
    return [waiting(f"{name}{index}", index) for index in range(count)]


def at(place: str, since: float = BEAT - 1, count: int = 4) -> dict[str, object]:
    return {"whereabouts": (Whereabouts(place, since, count),)}


def sent(*tasks: TaskView, workers: tuple[WorkerView, ...], **fields: object) -> list[str]:
    commands = plan(snapshot(*tasks, workers=workers, **fields))
    return [command.group for command in commands if isinstance(command, DispatchGroup)]


def reasons(*tasks: TaskView, workers: tuple[WorkerView, ...]) -> dict[str, str]:
    commands = plan(snapshot(*tasks, workers=workers))
    return {command.task: command.reason for command in commands if isinstance(command, Explain)}


def test_what_is_sent_fits_the_free_kv() -> None:
    """350 tokens free of 1,000, 100 a group: three go."""
    workers = (engine(kv_tokens=1000, kv_tokens_free=350),)
    assert len(sent(task(step=open_step(*groups("g", 9))), workers=workers)) == 3


def test_the_kv_that_a_group_may_fill_counts_and_not_what_it_is_charged() -> None:
    workers = (engine(kv_tokens=1000, kv_tokens_free=350),)
    long = task(group_cost=10, group_kv=150, step=open_step(*groups("g", 9)))
    assert len(sent(long, workers=workers)) == 2


def test_what_was_sent_since_the_last_beat_counts_until_a_beat_covers_it() -> None:
    """Free as of the beat: 350. Sent since: a group in the queue, one at the worker, one unseen."""
    workers = (engine(kv_tokens=1000, kv_tokens_free=350),)
    new = {
        "queued": dispatched("x", 9, **at("queue:rollout.smollm2")),
        "taken": dispatched("x", 9, **at("worker:r#1", since=BEAT + 0.1)),
        "unseen": dispatched("x", 9, whereabouts=(), dispatched_at=NOW),
    }
    for group in new.values():
        step = open_step(group, *groups("g", 9))
        assert len(sent(task(step=step), workers=workers)) == 2
    seen = dispatched("x", 9, **at("worker:r#1", since=BEAT))
    assert len(sent(task(step=open_step(seen, *groups("g", 9))), workers=workers)) == 3


def test_kv_that_a_beat_covers_is_expected_to_grow() -> None:
    """Five groups have just begun and fill nothing yet: 500 of 800 are theirs all the same."""
    begun = [dispatched(f"b{i}", i, **at("worker:r#1")) for i in range(5)]
    workers = (engine(kv_tokens=800, kv_tokens_free=790),)
    step = open_step(*begun, *groups("g", 9))
    assert len(sent(task(step=step), workers=workers)) == 3


def test_trajectories_at_the_environment_hold_no_kv() -> None:
    """Between two turns it is kept only while there is room."""
    away = [dispatched(f"b{i}", i, **at("queue:environment")) for i in range(5)]
    workers = (engine(kv_tokens=400, kv_tokens_free=400), ENVIRONMENT)
    assert len(sent(task(step=open_step(*away, *groups("g", 9))), workers=workers)) == 4


def test_the_kv_of_all_workers_counts_and_one_that_does_not_say_has_no_bound() -> None:
    two = (
        engine(kv_tokens=200, kv_tokens_free=200),
        engine("s#1", kv_tokens=300, kv_tokens_free=300),
    )
    view = task(step=open_step(*groups("g", 9)))
    assert len(sent(view, workers=two)) == 5
    assert len(sent(view, workers=(two[0], engine("s#1")))) == 9


def test_a_group_larger_than_all_kv_goes_alone_and_no_smaller_one_passes_it() -> None:
    workers = (engine(kv_tokens=50, kv_tokens_free=50),)
    assert sent(task(step=open_step(*groups("g", 2))), workers=workers) == ["g0"]
    workers = (engine(kv_tokens=150, kv_tokens_free=100),)
    busy = task("busy", group_cost=50, step=open_step(dispatched("a", **at("worker:r#1"))))
    huge = task("huge", tenant="big", group_cost=500, step=open_step(waiting("h")))
    small = task("small", tenant="tiny", group_cost=20, step=open_step(waiting("s")))
    tenants = (tenant(), tenant("big"), tenant("tiny", virtual_time=5000.0))
    assert sent(busy, huge, small, workers=workers, tenants=tenants) == []
    assert sent(huge, small, workers=workers, tenants=tenants) == ["h"]


def test_a_task_without_an_adapter_slot_is_held_back_and_the_others_go_on() -> None:
    inside = task("in", step=open_step(dispatched("a", **at("worker:r#1")), *groups("i", 2)))
    outside = task("out", tenant="z", step=open_step(*groups("o", 2)))
    workers = (engine(adapter_slots=1),)
    tenants = (tenant(virtual_time=900.0), tenant("z"))
    assert sent(inside, outside, workers=workers, tenants=tenants) == ["i0", "i1"]
    assert "o0" in sent(inside, outside, workers=(engine(adapter_slots=2),), tenants=tenants)
    assert "o0" in sent(inside, outside, workers=(engine(),), tenants=tenants)


def test_any_worker_may_be_given_any_group_so_the_fewest_adapter_slots_count() -> None:
    tasks = [task(name, step=open_step(waiting(name))) for name in "abcd"]
    workers = (engine(adapter_slots=3), engine("s#1", adapter_slots=2), engine("t#1"))
    assert sent(*tasks, workers=workers) == ["a", "b"]


def test_an_adapter_is_in_use_until_its_last_trajectory_has_left_the_workers() -> None:
    graded = task("in", step=open_step(dispatched("a", **at("queue:environment"))))
    outside = task("out", step=open_step(waiting("o")))
    workers = (engine(adapter_slots=1), ENVIRONMENT)
    assert sent(graded, outside, workers=workers) == ["o"]


def test_a_lost_group_without_an_adapter_slot_stops_no_other() -> None:
    inside = task("in", step=open_step(dispatched("a", **at("worker:r#1")), *groups("i", 1)))
    lost = task("lost", step=open_step(dispatched("l", **at("worker:r#0"))))
    assert sent(inside, lost, workers=(engine(adapter_slots=1),)) == ["i0"]
    assert sent(inside, lost, workers=(engine(adapter_slots=2),)) == ["l", "i0"]


def test_what_is_waited_for_is_told_in_words() -> None:
    inside = task("in", step=open_step(dispatched("a", **at("worker:r#1"))))
    outside = task("out", step=open_step(*groups("o", 2), number=3))
    heading = "step 4 of 40: 2 of 2 groups waiting for"
    assert reasons(inside, outside, workers=(engine(adapter_slots=1),))["out"] == (
        f"{heading} room in the engine: other tasks use all its adapter slots"
    )
    full = (engine(kv_tokens=150, kv_tokens_free=150),)
    assert reasons(inside, outside, workers=full)["out"] == (
        f"{heading} room in the engine: its memory for tokens is taken"
    )
    assert reasons(inside, outside, workers=(engine(slots=4),))["out"] == f"{heading} generation"


def _steps_done(tasks: list[TaskView], tenants: list[TenantView], rounds: int) -> Counter[str]:
    """Plays `rounds` plans with one adapter slot; a step ends a round after its groups went."""
    done: Counter[str] = Counter()
    by_id = {view.id: view for view in tasks}
    for _ in range(rounds):
        view = snapshot(*by_id.values(), workers=(engine(adapter_slots=1),), tenants=tuple(tenants))
        commands = [c for c in plan(view) if isinstance(c, DispatchGroup)]
        for command in commands:
            owner = by_id[command.task].tenant
            tenants = [
                replace(t, virtual_time=command.virtual_time, last_start=command.last_start)
                if t.id == owner
                else t
                for t in tenants
            ]
            by_id[command.task] = replace(
                by_id[command.task],
                virtual_time=command.task_virtual_time,
                last_start=command.task_last_start,
            )
        for name in {command.task for command in commands}:
            done[name] += 1
            step = replace(by_id[name].steps[0], number=done[name])
            by_id[name] = replace(by_id[name], steps=(step,))
    return done


def test_tasks_of_a_tenant_take_a_single_adapter_slot_in_turn() -> None:
    """The third does not starve while the first two take turns."""
    tasks = [task(name, step=open_step(waiting(name))) for name in "abcde"]
    assert set(_steps_done(tasks, [tenant()], rounds=50).values()) == {10}


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 6), st.floats(0, 1e6), st.integers(1, 200))
def test_a_tenant_with_one_task_gets_its_share_of_a_single_adapter_slot(
    many: int, ahead: float, cost: int
) -> None:
    """However many tasks another tenant has, whatever either has had before, half the tokens."""
    flood = [
        task(f"f{i}", tenant="flood", group_cost=100, step=open_step(waiting(f"f{i}")))
        for i in range(many)
    ]
    single = task("one", tenant="one", group_cost=cost, step=open_step(waiting("one")))
    tenants = [
        tenant("flood", virtual_time=ahead, last_start=ahead),
        tenant("one", virtual_time=1000.0, last_start=1000.0),
    ]
    done = _steps_done([*flood, single], tenants, rounds=100)
    flooded = 100 * sum(done[view.id] for view in flood)
    assert abs(flooded - cost * done["one"]) <= 2 * (100 + cost)
