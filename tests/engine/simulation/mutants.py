"""Planted bugs, one for each invariant at least: planners that decide wrongly, stores that forget.

Each differs from the shipped planner, or the faithful store, in one thing only.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from engine.manager import plan
from engine.manager.policy import Policy
from engine.manager.snapshot import (
    Command,
    DispatchGroup,
    DispatchTraining,
    End,
    OpenStep,
    SetConcurrency,
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
                self.touch(task.id)
                task.versions.pop()
                return


class ForgetsPayloads(Store):
    """Loses the finished groups of open steps when a process is killed."""

    def process_died(self) -> None:
        for task in self.tasks.values():
            for step in task.live_steps:
                for group in step.groups:
                    if group.state == "finished":
                        self.touch(task.id)
                        group.state = "waiting"


def opens_two_steps(snapshot: Snapshot, policy: Policy) -> list[Command]:
    """Begins the next step while one is in training, to keep the engine busy."""
    early: list[Command] = [
        OpenStep(task.id, task.steps[-1].number + 1, task.version)
        for task in snapshot.tasks
        if task.state == "running" and len(task.steps) > task.max_staleness
    ]
    return [*plan(snapshot, policy), *early]


def never_redispatches(snapshot: Snapshot, policy: Policy) -> list[Command]:
    """Has no leases on groups: what is lost stays lost."""
    states = {g.id: g.state for task in snapshot.tasks for s in task.steps for g in s.groups}
    return [
        command
        for command in plan(snapshot, policy)
        if not (isinstance(command, DispatchGroup) and states[command.group] == "dispatched")
    ]


def never_retrains(snapshot: Snapshot, policy: Policy) -> list[Command]:
    """Has no leases on training passes."""
    return [c for c in plan(snapshot, policy) if not (isinstance(c, DispatchTraining) and c.cause)]


def two_passes_a_trainer(snapshot: Snapshot, policy: Policy) -> list[Command]:
    """Counts every training worker twice."""
    return plan(
        replace(snapshot, workers=(*snapshot.workers, *_doubles(snapshot, "training"))), policy
    )


def slots_promised_twice(snapshot: Snapshot, policy: Policy) -> list[Command]:
    """Counts every rollout worker twice."""
    return plan(
        replace(snapshot, workers=(*snapshot.workers, *_doubles(snapshot, "rollout"))), policy
    )


def memory_promised_twice(snapshot: Snapshot, policy: Policy) -> list[Command]:
    """Does not look at the KV that engines tell of."""
    return plan(_without(snapshot, kv_tokens=0), policy)


def forgets_what_it_sent(snapshot: Snapshot, policy: Policy) -> list[Command]:
    """Believes the last beat's free KV, whatever was sent since, and nothing else."""
    workers = tuple(
        replace(worker, kv_tokens=1_000_000, kv_tokens_free=worker.kv_tokens_free)
        for worker in snapshot.workers
    )
    costs = tuple(replace(task, group_kv=1) for task in snapshot.tasks)
    return plan(replace(snapshot, workers=workers, tasks=costs), policy)


def adapters_promised_twice(snapshot: Snapshot, policy: Policy) -> list[Command]:
    """Does not look at the adapter slots that engines tell of."""
    return plan(_without(snapshot, adapter_slots=0), policy)


def _without(snapshot: Snapshot, **figures: int) -> Snapshot:
    return replace(snapshot, workers=tuple(replace(w, **figures) for w in snapshot.workers))


def _doubles(snapshot: Snapshot, kind: str) -> list[WorkerView]:
    return [
        replace(worker, incarnation=f"{worker.incarnation}-double", name=f"{worker.name}-double")
        for worker in snapshot.workers
        if worker.kind == kind
    ]


def last_in_first_out(snapshot: Snapshot, policy: Policy) -> list[Command]:
    """Trains the step first that became ready last."""
    return plan(replace(snapshot, tasks=tuple(_reversed(task) for task in snapshot.tasks)), policy)


def _reversed(task: TaskView) -> TaskView:
    steps = tuple(
        replace(step, ready_order=1_000_000 - step.ready_order) if step.state == "ready" else step
        for step in task.steps
    )
    return replace(task, steps=steps)


def fails_the_neighbour(snapshot: Snapshot, policy: Policy) -> list[Command]:
    """Ends a task of another tenant along with the one that failed."""
    tenants: dict[str, Any] = {task.id: task.tenant for task in snapshot.tasks}
    commands = plan(snapshot, policy)
    failed = [c for c in commands if isinstance(c, End) and c.state == "failed"]
    neighbours: list[Command] = [
        End(task.id, "failed", end.reason)
        for end in failed
        for task in snapshot.tasks
        if task.state == "running" and task.tenant != tenants[end.task]
    ]
    return [*commands, *neighbours[:1]]


def fails_whoever_lost_a_worker(snapshot: Snapshot, policy: Policy) -> list[Command]:
    """Ends a task whose training worker died, instead of training again."""
    lost = [c for c in plan(snapshot, policy) if isinstance(c, DispatchTraining) and c.cause]
    return [*plan(snapshot, policy), *(End(c.task, "failed", c.cause) for c in lost)]


def trains_the_newer_step_first(snapshot: Snapshot, policy: Policy) -> list[Command]:
    """Looks at each task's last step alone when it trains."""
    newest = tuple(
        replace(task, steps=task.steps[::-1]) if len(task.steps) > 1 else task
        for task in snapshot.tasks
    )
    trained = plan(replace(snapshot, tasks=newest), policy)
    return [
        *(c for c in plan(snapshot, policy) if not isinstance(c, DispatchTraining)),
        *(c for c in trained if isinstance(c, DispatchTraining)),
    ]


def generates_by_an_older_version(snapshot: Snapshot, policy: Policy) -> list[Command]:
    """Opens each step at one version less than the present one."""
    return [
        replace(c, version=max(0, c.version - 1)) if isinstance(c, OpenStep) else c
        for c in plan(snapshot, policy)
    ]


def forgets_paused_tasks(snapshot: Snapshot, policy: Policy) -> list[Command]:
    """Does not see that what a paused task has in flight fills the engines."""
    tasks = tuple(task for task in snapshot.tasks if task.state != "paused")
    return plan(replace(snapshot, tasks=tasks), policy)


def holds_back_for_ever(snapshot: Snapshot, policy: Policy) -> list[Command]:
    """Takes a step that waits to be begun for one that is begun, so that none ever is."""
    begun = {
        (task.id, step.number): bool(step.num_finished or step.dispatched or task.pass_s <= 0)
        for task in snapshot.tasks
        for step in task.steps
    }
    return [
        command
        for command in plan(snapshot, policy)
        if not isinstance(command, DispatchGroup) or begun[command.task, command.step]
    ]


def trains_two_at_once(snapshot: Snapshot, policy: Policy) -> list[Command]:
    """Lets a trainer take two steps where it may take one."""
    return plan(snapshot, replace(policy, steps_per_pass=policy.steps_per_pass + 1))


def ignores_the_limit(snapshot: Snapshot, policy: Policy) -> list[Command]:
    """Finds out how many sequences are best, and sends as many as there is room for."""
    found = [c for c in plan(snapshot, policy) if isinstance(c, SetConcurrency)]
    others = plan(snapshot, replace(policy, adapts=False))
    return [*found, *others]


def charges_nobody(snapshot: Snapshot, policy: Policy) -> list[Command]:
    """Leaves the virtual times of tenants where they are."""
    times = {tenant.id: tenant.virtual_time for tenant in snapshot.tenants}
    tenants = {task.id: task.tenant for task in snapshot.tasks}
    return [
        replace(c, virtual_time=times[tenants[c.task]]) if isinstance(c, DispatchGroup) else c
        for c in plan(snapshot, policy)
    ]


def charges_no_task(snapshot: Snapshot, policy: Policy) -> list[Command]:
    """Leaves the virtual times of tasks where they are."""
    times = {task.id: task.virtual_time for task in snapshot.tasks}
    return [
        replace(c, task_virtual_time=times[c.task]) if isinstance(c, DispatchGroup) else c
        for c in plan(snapshot, policy)
    ]


def ignores_weights(snapshot: Snapshot, policy: Policy) -> list[Command]:
    """Serves every tenant alike."""
    tenants = tuple(replace(tenant, weight=1.0) for tenant in snapshot.tenants)
    return plan(replace(snapshot, tenants=tenants), policy)


def trains_favourites(snapshot: Snapshot, policy: Policy) -> list[Command]:
    """Lets no step of the task that was submitted first train while another one is ready."""
    first = min(snapshot.tasks, key=lambda task: (task.submitted_at, task.id), default=None)
    ready = {t.id for t in snapshot.tasks for step in t.steps if step.state == "ready"}
    commands = plan(snapshot, policy)
    if first is None or ready <= {first.id}:
        return commands
    passed = tuple(replace(t, state="paused") if t is first else t for t in snapshot.tasks)
    trained = plan(replace(snapshot, tasks=passed), policy)
    return [
        *(c for c in commands if not isinstance(c, DispatchTraining)),
        *(c for c in trained if isinstance(c, DispatchTraining)),
    ]
