"""Whoever changes anything of a task looks its row up first: the lock order of `lifecycle`.

SQLite has one writer and needs no order; on PostgreSQL another order ends in deadlocks. The test
looks at the first statement of each verb's transaction, which is the same on both.
"""

from collections.abc import Callable
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from jobs.models import Group, PolicyVersion, Step
from jobs.services import groups, lifecycle, passes
from tests.jobs.trajectories import trajectory

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("redis")]


@pytest.fixture
def step(task: Any) -> Step:
    task.state = "running"
    task.save()
    PolicyVersion.objects.create(task=task, number=0, digest="d0", key="k0")
    return Step.objects.create(task=task, number=0, state="training", fence=1)


def _group(step: Step) -> Group:
    return Group.objects.create(step=step, index=0, prompt_index=0, state="dispatched", attempt=1)


def _finish(step: Step) -> Callable[[], Any]:
    group = _group(step)
    found = [trajectory(group.pk, index) for index in range(2)]
    return lambda: groups.finish_group(str(group.pk), 1, found, "environment")


def _return(step: Step) -> Callable[[], Any]:
    group = _group(step)
    return lambda: groups.return_group(str(group.pk), 1, "broke")


def _taken(step: Step) -> passes.Pass:
    taken = passes.take_pass(step.pk, 1, "a", "training")
    assert taken
    return taken


def _commit(step: Step) -> Callable[[], Any]:
    taken = _taken(step)
    return lambda: passes.commit_version(taken, "d1", "k1", 1, {})


def _fail(step: Step) -> Callable[[], Any]:
    taken = _taken(step)
    return lambda: passes.fail_pass(taken, "broke")


VERBS: dict[str, Callable[[Step], Callable[[], Any]]] = {
    "finish a group": _finish,
    "return a group": _return,
    "take a pass": lambda step: lambda: passes.take_pass(step.pk, 1, "a", "training"),
    "commit a version": _commit,
    "fail a pass": _fail,
    "end a task": lambda step: (
        lambda: lifecycle.end_task(step.task_id, "failed", "over", from_states=["running"])
    ),
    "move a task": lambda step: (
        lambda: lifecycle.move_task(step.task_id, "paused", from_states=["running"])
    ),
}


@pytest.mark.parametrize("verb", VERBS.values(), ids=VERBS)
def test_a_verb_locks_the_task_before_anything_else(
    step: Step, verb: Callable[[Step], Callable[[], Any]]
) -> None:
    act = verb(step)
    with CaptureQueriesContext(connection) as queries:
        assert act()
    statements = [query["sql"] for query in queries]
    begin = next(n for n, sql in enumerate(statements) if sql.startswith("BEGIN"))
    first = next(sql for sql in statements[begin + 1 :] if not sql.startswith("SAVEPOINT"))
    assert first.startswith(('SELECT "jobs_task"', 'UPDATE "jobs_task"')), first
