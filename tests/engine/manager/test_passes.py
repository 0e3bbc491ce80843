"""Which steps train, in which order, on how many trainers."""

from __future__ import annotations

import pytest

from engine.manager import plan
from engine.manager.snapshot import DispatchTraining, TaskView

from .snapshots import (
    NOW,
    ROLLOUT,
    TRAINER,
    ready_step,
    snapshot,
    task,
    tenant,
    training_step,
    worker,
)

SECOND = worker("t2#1", "training")


def passes(*tasks: TaskView, **fields: object) -> list[DispatchTraining]:
    commands = plan(snapshot(*tasks, **fields))
    return [command for command in commands if isinstance(command, DispatchTraining)]


def trained(*tasks: TaskView, **fields: object) -> list[str]:
    return [command.task for command in passes(*tasks, **fields)]


def ready(id: str, order: int, **fields: object) -> TaskView:
    return task(id, step=ready_step(order), **fields)


def test_the_first_ready_step_is_trained_under_fence_1() -> None:
    tasks = [ready("late", 9), ready("early", 4, tenant="zeta")]
    tenants = (tenant(), tenant("zeta"))
    assert passes(*tasks, tenants=tenants) == [DispatchTraining("early", 0, fence=1, cause="")]


def test_a_step_that_came_back_with_an_error_gets_the_next_fence() -> None:
    assert passes(task(step=ready_step(4, fence=2, errors=1)))[0].fence == 3


def test_as_many_passes_as_trainers() -> None:
    tasks = [ready(f"t{order}", order) for order in (3, 1, 2)]
    assert trained(*tasks, workers=(TRAINER, SECOND)) == ["t1", "t2"]
    assert trained(*tasks, workers=(ROLLOUT,)) == []


@pytest.mark.parametrize("holder", ["", "t#1"], ids=["in the queue", "at the trainer"])
def test_a_pass_under_way_occupies_its_trainer(holder: str) -> None:
    busy = task("busy", step=training_step(holder=holder))
    assert trained(busy, ready("next", 2)) == []
    assert trained(busy, ready("next", 2), workers=(TRAINER, SECOND)) == ["next"]


def test_a_pass_of_a_paused_task_finishes_and_occupies_its_trainer() -> None:
    paused = task("paused", state="paused", step=training_step(holder="t#1"))
    assert trained(paused, ready("next", 2)) == []


def test_trainers_are_matched_to_the_base_models_they_serve() -> None:
    """Both trainers serve smollm2, one serves qwen too: it is left to qwen, though t#0 < t#1."""
    both = worker("t#0", "training", name="both", base_models=("qwen", "smollm2"))
    tasks = [ready("s", 1), ready("q", 2, base_model="qwen")]
    assert trained(*tasks, workers=(both, TRAINER)) == ["s", "q"]
    assert trained(*tasks, workers=(TRAINER,)) == ["s"]


def test_a_step_that_no_trainer_serves_lets_others_past() -> None:
    assert trained(ready("q", 1, base_model="qwen"), ready("s", 2)) == ["s"]


def test_a_pass_whose_trainer_died_goes_again_before_any_other() -> None:
    lost = task("lost", step=training_step(fence=4, ready_order=8, holder="t#0"))
    assert passes(lost, ready("next", 2)) == [
        DispatchTraining("lost", 0, fence=5, cause="its training worker stopped")
    ]


def test_a_pass_that_left_its_queue_goes_again() -> None:
    lost = task("lost", step=training_step(dispatched_at=NOW - 6))
    assert [(c.task, c.fence) for c in passes(lost)] == [("lost", 2)]
    assert passes(lost, queues={"training.smollm2": 1}) == []


def test_a_lost_pass_of_a_paused_task_waits_and_occupies_nothing() -> None:
    lost = task("lost", state="paused", step=training_step(holder="t#0"))
    assert trained(lost, ready("next", 2)) == ["next"]


@pytest.mark.parametrize("fields", [{"state": "paused"}, {"tenant": "suspended"}])
def test_paused_tasks_and_suspended_tenants_keep_their_place_but_do_not_train(
    fields: dict[str, str],
) -> None:
    tenants = (tenant(), tenant("suspended", is_suspended=True))
    held = ready("held", 1, **fields)
    assert trained(held, ready("next", 2), tenants=tenants) == ["next"]
