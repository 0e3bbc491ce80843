"""Whole runs of the shipped planner in virtual time."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest

from engine.manager.policy import (
    PAPER,
    POLICIES,
    SEQUENTIAL,
    SHIPPED,
    SYNCHRONOUS,
    WITHOUT_ASYNCHRONY,
    WITHOUT_MULTI_LORA,
    Policy,
)
from engine.simulation.performance.cluster import Cluster
from engine.simulation.performance.cost_models import FIRST_MODEL
from engine.simulation.performance.run import Run, run
from engine.simulation.performance.workload import TaskSpec, mixed_tasks

STEPS = 2


def small(count: int = 3, num_steps: int = STEPS, **settings: int) -> list[TaskSpec]:
    return mixed_tasks(count, num_steps, batch_size=4, group_size=2, **settings)


def small_run(policy: Policy, **settings: int) -> Run:
    return run(small(**settings), FIRST_MODEL, policy)


def task_intervals(found: Run) -> list[tuple[float, float]]:
    """From the first group sent to the end, of each task, in order."""
    own = [[step for step in found.steps if step.task == task.task] for task in found.tasks]
    begun = [min(step.begun_at for step in steps) for steps in own]
    return sorted(zip(begun, (task.ended_at for task in found.tasks), strict=True))


def overlap_s(found: Run) -> float:
    """Time in which an engine and a trainer were at work at once."""
    rollout = [span for span in found.spans if span.stage == "rollout"]
    training = [span for span in found.spans if span.stage == "training"]
    return sum(
        max(0.0, min(one.end, other.end) - max(one.start, other.start))
        for one in rollout
        for other in training
    )


def test_a_run_is_repeated_exactly() -> None:
    one, again = small_run(SHIPPED), small_run(SHIPPED)
    assert one.steps == again.steps
    assert one.spans == again.spans


@pytest.mark.parametrize("policy", POLICIES.values(), ids=POLICIES.keys())
def test_under_every_policy_all_work_is_done_once_and_none_beats_the_bound(policy: Policy) -> None:
    found = small_run(policy)
    assert sorted((step.task, step.number) for step in found.steps) == sorted(
        (spec.id, number) for spec in small() for number in range(STEPS)
    )
    wanted = sum(e.num_tokens for spec in small() for n in range(STEPS) for e in spec.step(n))
    made = sum(span.tokens for span in found.spans if span.stage == "rollout")
    assert made == pytest.approx(wanted)
    assert sum(step.tokens for step in found.steps) == wanted
    passes_s = sum(span.end - span.start for span in found.spans if span.stage == "training")
    assert passes_s == pytest.approx(STEPS * (2.5 + 5.0 + 3.0))
    assert found.over_bound >= 1


def test_strict_tasks_generate_every_step_by_the_version_before_it() -> None:
    found = small_run(SHIPPED)
    assert all(step.version == step.number for step in found.steps)
    by_task = sorted(found.steps, key=lambda step: (step.task, step.number))
    for before, after in pairwise(by_task):
        assert before.task != after.task or after.begun_at >= before.committed_at


def test_sequential_runs_one_task_after_the_other() -> None:
    intervals = task_intervals(small_run(SEQUENTIAL))
    assert all(one[1] <= other[0] for one, other in pairwise(intervals))
    overlapping = task_intervals(small_run(PAPER))
    assert overlapping[0][1] > overlapping[1][0]


def test_synchronous_trains_nothing_before_all_batches_are_whole() -> None:
    found = small_run(SYNCHRONOUS)
    for number in range(STEPS):
        own = [step for step in found.steps if step.number == number]
        assert min(s.trained_at for s in own) >= max(s.ready_at for s in own)
    assert overlap_s(found) == 0


def test_without_asynchrony_engines_stand_still_while_a_pass_trains() -> None:
    assert overlap_s(small_run(WITHOUT_ASYNCHRONY)) == pytest.approx(0, abs=1e-6)
    assert overlap_s(small_run(PAPER)) > 1


def test_one_adapter_a_batch_is_slower() -> None:
    assert small_run(WITHOUT_MULTI_LORA).makespan_s > 1.2 * small_run(PAPER).makespan_s


def test_staleness_overlaps_steps_of_a_task_within_its_limit() -> None:
    found = small_run(PAPER, count=1, num_steps=4, max_staleness=1)
    assert all(0 <= step.number - step.version <= 1 for step in found.steps)
    assert any(step.version < step.number for step in found.steps)
    assert found.makespan_s < small_run(PAPER, count=1, num_steps=4).makespan_s


def test_a_joint_pass_takes_its_longest_and_a_share_of_the_others() -> None:
    gsm_only = [replace(spec, kind=small()[0].kind) for spec in small(4, 1)]
    found = run(gsm_only, FIRST_MODEL, replace(PAPER, steps_per_pass=4, has_barrier=True))
    assert {step.trained_at for step in found.steps} == {found.steps[0].trained_at}
    joint_s = found.steps[0].committed_at - found.steps[0].trained_at
    assert joint_s == pytest.approx(2.5 * (1 + 0.6 * 3))


def test_device_seconds_of_all_tenants_are_those_of_all_workers() -> None:
    specs = [replace(spec, tenant=f"tenant-{spec.kind.name}") for spec in small()]
    cluster = Cluster(specs, FIRST_MODEL, PAPER).run()
    cluster._beat()
    busy_s = sum(span.end - span.start for span in cluster.spans)
    assert sum(cluster.ledger[-1][1].values()) == pytest.approx(busy_s)


def test_costs_are_learned_from_what_was_done() -> None:
    cluster = Cluster(small(1, 5), FIRST_MODEL, PAPER)
    cluster.run(until_s=12)
    (task,) = cluster.tasks.values()
    assert task.pass_s.value == pytest.approx(2.5)
    groups = [task.spec.group(0, index) for index in range(4)]
    mean = sum(e.num_tokens for group in groups for e in group) / 4
    assert task.group_tokens.value == pytest.approx(mean, rel=0.5)
    assert 0 < task.group_s.value < task.rollout_s.value
