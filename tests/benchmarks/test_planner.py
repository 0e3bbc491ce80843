"""The snapshot that the planner is timed on is one that it has to decide something about."""

from __future__ import annotations

import random

from benchmarks.planner import GROUPS, measure, snapshot_of
from engine.manager import plan
from engine.manager.snapshot import DispatchGroup


def test_most_groups_are_under_way_none_is_lost_and_some_are_to_be_sent() -> None:
    snapshot = snapshot_of(20, random.Random(1))
    dispatched = sum(len(task.steps[0].dispatched) for task in snapshot.tasks)
    assert dispatched > 20 * GROUPS / 2
    assert all(task.steps[0].num_groups == GROUPS for task in snapshot.tasks)
    sent = [command for command in plan(snapshot) if isinstance(command, DispatchGroup)]
    assert not any(command.cause for command in sent)


def test_both_p99_have_a_bar() -> None:
    rows = measure(5, num_plans=3)
    assert [row.bar for row in rows] == [None, 100, None, 100]
    assert all(row.value is not None and row.value > 0 for row in rows)
