"""plan() on snapshots that nobody would write by hand, impossible ones included."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from engine.manager import plan
from engine.manager.snapshot import (
    Admit,
    DispatchGroup,
    DispatchTraining,
    End,
    GroupView,
    OpenStep,
    Snapshot,
    StepView,
    TaskView,
    TenantView,
    Whereabouts,
    WorkerView,
)

times = st.floats(min_value=0, max_value=2000, allow_nan=False)
seconds = st.sampled_from([0.0, 0.5, 100.0])
counts = st.integers(min_value=0, max_value=5)
bases = st.sampled_from(["alpha", "beta"])
tenant_ids = st.sampled_from(["a", "b", "c"])
incarnations = st.sampled_from(["w#1", "w#2", "v#1", ""])
places = st.one_of(
    st.sampled_from(["queue:rollout.alpha", "queue:environment", "nonsense", ""]),
    incarnations.map("worker:{}".format),
)
groups = st.builds(
    GroupView,
    id=st.uuids().map(str),
    index=counts,
    state=st.sampled_from(["waiting", "dispatched"]),
    attempt=counts,
    errors=counts,
    last_error=st.sampled_from(["", "out of memory"]),
    dispatched_at=times,
    whereabouts=st.lists(st.builds(Whereabouts, places, times, counts), max_size=2).map(tuple),
)
steps = st.builds(
    StepView,
    number=counts,
    state=st.sampled_from(["open", "ready", "training"]),
    groups=st.lists(groups, max_size=4).map(tuple),
    ready_order=counts,
    fence=counts,
    errors=counts,
    last_error=st.sampled_from(["", "loss is not finite"]),
    dispatched_at=times,
    holder=incarnations,
)
tasks = st.builds(
    TaskView,
    id=st.integers(0, 50).map("t{}".format),
    tenant=tenant_ids,
    base_model=bases,
    state=st.sampled_from(["queued", "running", "paused"]),
    submitted_at=times,
    max_steps=counts,
    batch_size=counts,
    group_size=st.integers(2, 40),
    group_cost=st.integers(0, 500),
    version=st.integers(-1, 5),
    prepare_sent_at=times,
    prepare_error=st.sampled_from(["", "Row 3 has no answer."]),
    steps=st.lists(steps, max_size=3).map(tuple),
    max_staleness=st.integers(0, 2),
    priority=st.integers(-1, 1),
    virtual_time=st.floats(min_value=-1e9, max_value=1e9),
    last_start=st.floats(min_value=0, max_value=1e9),
    group_s=seconds,
    pass_s=seconds,
    rollout_s=seconds,
)
tenants = st.builds(
    TenantView,
    id=tenant_ids,
    weight=st.floats(min_value=0, max_value=10),
    virtual_time=st.floats(min_value=-1e9, max_value=1e9),
    last_start=st.floats(min_value=0, max_value=1e9),
    max_concurrent_tasks=counts,
    tokens_per_day=counts,
    tokens_today=counts,
    is_suspended=st.booleans(),
)
workers = st.builds(
    WorkerView,
    incarnation=incarnations,
    name=st.sampled_from(["w", "v"]),
    kind=st.sampled_from(["rollout", "environment", "training"]),
    base_models=st.lists(bases, max_size=2, unique=True).map(tuple),
    started_at=times,
    last_beat_at=times,
    slots=st.integers(0, 64),
)
snapshots = st.builds(
    Snapshot,
    now=times,
    tenants=st.lists(tenants, max_size=3, unique_by=lambda tenant: tenant.id).map(tuple),
    tasks=st.lists(tasks, max_size=6, unique_by=lambda task: task.id).map(tuple),
    workers=st.lists(workers, max_size=4).map(tuple),
    queues=st.dictionaries(st.sampled_from(["rollout.alpha", "environment"]), counts),
)


@settings(max_examples=300, deadline=None)
@given(snapshots, st.randoms(use_true_random=False))
def test_a_plan_depends_on_the_snapshot_only_and_not_on_its_order(
    view: Snapshot, random: object
) -> None:
    shuffled = list(view.tasks)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert plan(view) == plan(view) == plan(replace(view, tasks=tuple(shuffled)))


@settings(max_examples=300, deadline=None)
@given(snapshots)
def test_a_plan_contradicts_neither_itself_nor_what_is(view: Snapshot) -> None:
    commands = plan(view)
    task_of = {task.id: task for task in view.tasks}
    over = {c.task for c in commands if isinstance(c, End)}
    assert not any(c.task in over for c in commands if not isinstance(c, End))
    per_task = Counter((type(c), c.task) for c in commands if not isinstance(c, DispatchGroup))
    assert set(per_task.values()) <= {1}
    sent = [c.group for c in commands if isinstance(c, DispatchGroup)]
    assert len(sent) == len(set(sent))
    for command in commands:
        task = task_of[command.task]
        if isinstance(command, Admit):
            assert task.state == "queued"
        elif isinstance(command, OpenStep):
            assert task.state == "running"
            assert len(task.steps) <= task.max_staleness
            assert command.version == task.version
            assert command.number == task.version + len(task.steps)
        elif isinstance(command, DispatchGroup | DispatchTraining):
            assert task.state == "running"
            assert command.step in {step.number for step in task.steps}
