"""Planted bugs, one for each invariant at least: planners that decide wrongly, stores that forget.

Each differs from the shipped planner, or the faithful store, in one thing only.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from engine.manager import plan
from engine.manager.snapshot import (
    Command,
    DispatchGroup,
    DispatchTraining,
    End,
    OpenStep,
    Snapshot,
    TaskView,
    WorkerView,
)
from engine.simulation.facts import Sample
from engine.simulation.rows import StepRow
from engine.simulation.store import Store


class ReadyOneGroupTooSoon(Store):
    """Takes a step for whole while one of its groups is still to come."""

    def is_whole(self, step: StepRow) -> bool:
        return sum(group.state != "finished" for group in step.groups) <= 1


class AnyAdapter(Store):
    """Does not compare the digests that the engine reports with the version's."""

    def is_on_policy(self, group_id: str, samples: tuple[Sample, ...]) -> bool:
        return True


class NoFence(Store):
    """Commits whatever pass comes, however late."""

    def holds_fence(self, step: StepRow, fence: int, holder: str) -> bool:
        return True


class LateAttempts(Store):
    """Takes the result of any attempt at an unfinished group."""

    def is_live_attempt(self, group_id: str, attempt: int) -> bool:
        task, _, group = self.group(group_id)
        return not task.is_over and group.state == "dispatched"


class ForgetsOnCrash(Store):
    """Loses the version committed last when a process is killed."""

    def process_died(self) -> None:
        for task in self.tasks.values():
            if len(task.versions) > 1:
                task.versions.pop()
                return


class ForgetsPayloads(Store):
    """Loses the finished groups of open steps when a process is killed."""

    def process_died(self) -> None:
        for task in self.tasks.values():
            for step in task.live_steps:
                for group in step.groups:
                    if group.state == "finished":
                        group.state = "waiting"


def opens_two_steps(snapshot: Snapshot) -> list[Command]:
    """Begins the next step while one is in training, to keep the engine busy."""
    early: list[Command] = [
        OpenStep(task.id, task.steps[-1].number + 1, task.version)
        for task in snapshot.tasks
        if task.state == "running" and task.steps and task.steps[-1].state == "training"
    ]
    return [*plan(snapshot), *early]


def never_redispatches(snapshot: Snapshot) -> list[Command]:
    """Has no leases on groups: what is lost stays lost."""
    states = {g.id: g.state for task in snapshot.tasks for s in task.steps for g in s.groups}
    return [
        command
        for command in plan(snapshot)
        if not (isinstance(command, DispatchGroup) and states[command.group] == "dispatched")
    ]


def never_retrains(snapshot: Snapshot) -> list[Command]:
    """Has no leases on training passes."""
    return [c for c in plan(snapshot) if not (isinstance(c, DispatchTraining) and c.cause)]


def two_passes_a_trainer(snapshot: Snapshot) -> list[Command]:
    """Counts every training worker twice."""
    return plan(replace(snapshot, workers=(*snapshot.workers, *_doubles(snapshot, "training"))))


def slots_promised_twice(snapshot: Snapshot) -> list[Command]:
    """Counts every rollout worker twice."""
    return plan(replace(snapshot, workers=(*snapshot.workers, *_doubles(snapshot, "rollout"))))


def memory_promised_twice(snapshot: Snapshot) -> list[Command]:
    """Does not look at the KV that engines tell of."""
    return plan(_without(snapshot, kv_tokens=0))


def forgets_what_it_sent(snapshot: Snapshot) -> list[Command]:
    """Believes the last beat's free KV, whatever was sent since, and nothing else."""
    workers = tuple(
        replace(worker, kv_tokens=1_000_000, kv_tokens_free=worker.kv_tokens_free)
        for worker in snapshot.workers
    )
    costs = tuple(replace(task, group_kv=1) for task in snapshot.tasks)
    return plan(replace(snapshot, workers=workers, tasks=costs))


def adapters_promised_twice(snapshot: Snapshot) -> list[Command]:
    """Does not look at the adapter slots that engines tell of."""
    return plan(_without(snapshot, adapter_slots=0))


def _without(snapshot: Snapshot, **figures: int) -> Snapshot:
    return replace(snapshot, workers=tuple(replace(w, **figures) for w in snapshot.workers))


def _doubles(snapshot: Snapshot, kind: str) -> list[WorkerView]:
    return [
        replace(worker, incarnation=f"{worker.incarnation}-double", name=f"{worker.name}-double")
        for worker in snapshot.workers
        if worker.kind == kind
    ]


def last_in_first_out(snapshot: Snapshot) -> list[Command]:
    """Trains the step first that became ready last."""
    return plan(replace(snapshot, tasks=tuple(_reversed(task) for task in snapshot.tasks)))


def _reversed(task: TaskView) -> TaskView:
    steps = tuple(
        replace(step, ready_order=1_000_000 - step.ready_order) if step.state == "ready" else step
        for step in task.steps
    )
    return replace(task, steps=steps)


def fails_the_neighbour(snapshot: Snapshot) -> list[Command]:
    """Ends a task of another tenant along with the one that failed."""
    tenants: dict[str, Any] = {task.id: task.tenant for task in snapshot.tasks}
    commands = plan(snapshot)
    failed = [c for c in commands if isinstance(c, End) and c.state == "failed"]
    neighbours: list[Command] = [
        End(task.id, "failed", end.reason)
        for end in failed
        for task in snapshot.tasks
        if task.state == "running" and task.tenant != tenants[end.task]
    ]
    return [*commands, *neighbours[:1]]


def fails_whoever_lost_a_worker(snapshot: Snapshot) -> list[Command]:
    """Ends a task whose training worker died, instead of training again."""
    lost = [c for c in plan(snapshot) if isinstance(c, DispatchTraining) and c.cause]
    return [*plan(snapshot), *(End(c.task, "failed", c.cause) for c in lost)]
