"""What people read about a task, and that it is only sent when it changed."""

from __future__ import annotations

from dataclasses import replace

import pytest

from engine.manager import plan
from engine.manager.explain import ordinal
from engine.manager.snapshot import Explain, StepView, TaskView, Whereabouts

from .snapshots import (
    ALL_WORKERS,
    ENVIRONMENT,
    NOW,
    ROLLOUT,
    TRAINER,
    dispatched,
    open_step,
    ready_step,
    snapshot,
    task,
    tenant,
    training_step,
    waiting,
    worker,
)

IN_TRAINING = task("busy", step=training_step(holder="t#1"))


def explanations(*tasks: TaskView, **fields: object) -> dict[str, tuple[str, str, int]]:
    return {
        command.task: (command.phase, command.reason, command.queue_position)
        for command in plan(snapshot(*tasks, **fields))
        if isinstance(command, Explain)
    }


def explained(view: TaskView, **fields: object) -> tuple[str, str]:
    return explanations(view, **fields)[view.id][:2]


def test_queued_tasks_are_told_their_place_and_their_organisations_quota() -> None:
    tenants = (
        tenant(max_concurrent_tasks=2),
        tenant("zeta", max_concurrent_tasks=1),
        tenant("gone", is_suspended=True),
    )
    queued = {"state": "queued", "version": -1}
    tasks = [
        task("a1"),
        task("a2", state="paused"),
        task("z1", tenant="zeta"),
        task("g1", tenant="gone", submitted_at=1.5, **queued),
        task("a3", submitted_at=2.0, **queued),
        task("z2", tenant="zeta", submitted_at=3.0, **queued),
        task("a4", submitted_at=4.0, **queued),
    ]
    found = explanations(*tasks, tenants=tenants)
    assert found["a3"] == ("queued", "your organisation runs as many tasks as it may at once, 2", 1)
    assert found["z2"] == ("queued", "your organisation runs as many tasks as it may at once, 1", 1)
    assert found["a4"] == ("queued", "your organisation runs as many tasks as it may at once, 2", 2)
    assert found["g1"] == ("queued", "your organisation is suspended", 1)


def test_a_place_in_the_queue_follows_the_priority() -> None:
    tenants = (tenant(max_concurrent_tasks=1),)
    queued = {"state": "queued", "version": -1}
    first = task("first", submitted_at=2.0, **queued)
    second = task("second", submitted_at=3.0, **queued)
    places = explanations(task("busy"), first, second, tenants=tenants)
    assert (places["first"][2], places["second"][2]) == (1, 2)
    raised = replace(second, priority=1)
    places = explanations(task("busy"), first, raised, tenants=tenants)
    assert (places["first"][2], places["second"][2]) == (2, 1)


def test_a_long_queue_that_moves_on_is_told_to_its_first_tasks_only() -> None:
    """A flood of queued tasks, of which one is cancelled, must not keep the planner writing."""
    tenants = (tenant(max_concurrent_tasks=1),)
    queue = [task(f"q{n:03}", state="queued", version=-1, submitted_at=2.0 + n) for n in range(100)]
    told = explanations(task("busy"), *queue, tenants=tenants)
    queue = [
        replace(
            view, phase=told[view.id][0], reason=told[view.id][1], queue_position=told[view.id][2]
        )
        for view in queue
    ]
    assert [view.queue_position for view in queue] == [*range(1, 11), *[0] * 90]
    for active in ([task("busy")], []):  # the first is cancelled, or admitted
        changed = explanations(*active, *queue[1:], tenants=tenants)
        assert len(changed.keys() - {"busy"}) <= 11


def test_a_full_store_is_told_and_no_step_is_begun() -> None:
    reason = "storage quota used: no step is begun; ask an operator to raise it"
    assert explained(task(), tenants=(tenant(is_full=True),)) == ("rollout", reason)
    running = task(step=open_step(waiting("g1")))
    assert plan(snapshot(running, tenants=(tenant(is_full=True),)))  # what is open goes on


def test_a_task_that_is_admitted_takes_no_place_in_the_queue() -> None:
    queued = {"state": "queued", "version": -1}
    tenants = (tenant(max_concurrent_tasks=1),)
    found = explanations(task("a", **queued), task("b", **queued), tenants=tenants)
    assert found == {
        "b": ("queued", "your organisation runs as many tasks as it may at once, 1", 1)
    }


STEP_4 = [waiting("a", 0), waiting("b", 1), waiting("c", 2)]
AT_ENVIRONMENT = dispatched("e", 1, whereabouts=(Whereabouts("worker:e#1", NOW - 1, 1),))
TO_ENVIRONMENT = dispatched("q", 2, whereabouts=(Whereabouts("queue:environment", NOW - 1, 2),))


@pytest.mark.parametrize(
    ("step", "phase", "reason"),
    [
        (
            # 12 sequences may be in flight: of three groups of 6, two go in this plan
            open_step(*STEP_4, number=3, num_finished=5),
            "rollout",
            "step 4 of 40: 1 of 8 groups waiting for generation",
        ),
        (
            open_step(dispatched("d"), number=3, num_finished=1),
            "rollout",
            "step 4 of 40: 1 of 2 groups finished",
        ),
        (
            open_step(dispatched("d"), AT_ENVIRONMENT, number=3, num_finished=1),
            "rollout",
            "step 4 of 40: 1 of 3 groups finished",
        ),
        (
            open_step(AT_ENVIRONMENT, TO_ENVIRONMENT, number=3, num_finished=1),
            "environment",
            "step 4 of 40: 1 of 3 groups finished",
        ),
        (
            open_step(waiting("w"), AT_ENVIRONMENT, number=3),  # this plan sends w
            "rollout",
            "step 4 of 40: 0 of 2 groups finished",
        ),
        (training_step(number=3, holder="t#1"), "training", "step 4 of 40: training"),
        (ready_step(1, number=3), "training", "step 4 of 40: training"),  # this plan sends it
    ],
    ids=[
        "waiting",
        "generating",
        "generating and grading",
        "grading",
        "grading, the rest sent",
        "training",
        "sent to train",
    ],
)
def test_a_step_is_explained_by_its_stage(step: StepView, phase: str, reason: str) -> None:
    view = task(version=3, group_size=6, step=step)
    assert explained(view) == (phase, reason)


def test_the_place_in_line_for_training_counts_its_base_model_only() -> None:
    tasks = [
        IN_TRAINING,
        task("first", step=ready_step(2)),
        task("other", base_model="qwen", step=ready_step(3)),
        task("second", step=ready_step(4)),
    ]
    workers = (*ALL_WORKERS, worker("q#1", "rollout", base_models=("qwen",), slots=4))
    found = explanations(*tasks, workers=workers)
    assert found["first"][:2] == ("ready", "waiting to train, 1st in line")
    assert found["second"][:2] == ("ready", "waiting to train, 2nd in line")
    assert found["other"][:2] == ("ready", "no training worker for qwen is running")


def test_missing_workers_are_named_by_what_they_would_serve() -> None:
    rollout = task(step=open_step(waiting("g")))
    assert explained(rollout, workers=(ENVIRONMENT, TRAINER)) == (
        "rollout",
        "no rollout worker for smollm2 is running",
    )
    graded = task(step=open_step(AT_ENVIRONMENT, num_finished=1))
    assert explained(graded, workers=(ENVIRONMENT, TRAINER))[0] == "environment"
    lost = task(step=training_step(holder="t#0"))
    assert explained(lost, workers=(ROLLOUT, ENVIRONMENT)) == (
        "ready",
        "no training worker for smollm2 is running",
    )


def test_a_used_up_quota_is_explained_without_a_running_total() -> None:
    reason = "daily token quota of 1,000,000 used; resets at 00:00 UTC"
    for used in (1_000_000, 1_234_567):
        tenants = (tenant(tokens_per_day=1_000_000, tokens_today=used),)
        assert explained(task(), tenants=tenants) == ("rollout", reason)


def test_paused_suspended_and_unprepared_tasks_say_so() -> None:
    assert explained(task(state="paused", step=ready_step(1))) == ("paused", "paused")
    suspended = (tenant(is_suspended=True),)
    reason = "your organisation is suspended: nothing new is started"
    assert explained(task(), tenants=suspended) == ("paused", reason)
    unprepared = ("preparing", "preparing the prompts and the first version")
    assert explained(task(version=-1)) == unprepared


def test_nothing_is_explained_twice_and_every_change_is() -> None:
    view = task(state="queued", version=-1)
    tenants = (tenant(is_suspended=True),)
    phase, reason, position = explanations(view, tenants=tenants)["t1"]
    told = replace(view, phase=phase, reason=reason, queue_position=position)
    assert explanations(told, tenants=tenants) == {}
    for change in ({"phase": "x"}, {"reason": "x"}, {"queue_position": 7}):
        assert "t1" in explanations(replace(told, **change), tenants=tenants)


def test_a_reason_does_not_change_with_time_alone() -> None:
    view = snapshot(IN_TRAINING, task("next", step=ready_step(2)))
    later = replace(
        view,
        now=NOW + 5,
        workers=tuple(replace(w, last_beat_at=NOW + 4) for w in view.workers),
    )
    assert [c for c in plan(view) if isinstance(c, Explain)] == [
        c for c in plan(later) if isinstance(c, Explain)
    ]


@pytest.mark.parametrize(
    ("number", "text"),
    [(1, "1st"), (2, "2nd"), (3, "3rd"), (4, "4th"), (11, "11th"), (12, "12th"), (21, "21st"),
     (102, "102nd"), (113, "113th")],
)  # fmt: skip
def test_ordinals(number: int, text: str) -> None:
    assert ordinal(number) == text
