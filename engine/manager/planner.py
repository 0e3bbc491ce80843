"""What should happen next, given what is: the one place that decides.

`plan` is pure and level-triggered. It looks at the snapshot alone, never at an event, so a lost or
doubled event costs nothing and running it twice is safe; each command takes effect through a
conditional update, and the next plan sees its result. It keeps invariants 2, 3, 4 and 8 of
docs/architecture.md; the stores and workers keep the others.

A paused task, or one of a suspended tenant, gets nothing new: what is under way finishes, and a
ready step keeps its place in the FIFO.
"""

from __future__ import annotations

from collections import Counter

from .explain import explain_tasks, over_quota
from .passes import dispatch_passes
from .rollouts import dispatch_groups
from .snapshot import (
    Admit,
    Command,
    End,
    GroupView,
    OpenStep,
    Prepare,
    Snapshot,
    StepView,
    TaskView,
)
from .world import World

PREPARE_RETRY_S = 30.0  # a preparation that answered nothing for so long is sent again
MAX_ERRORS = 3  # attempts at one group, or passes over one step, that may end in an error
MAX_ATTEMPTS = 20  # dispatches of one group or step; work that kills its workers must end too


def plan(snapshot: Snapshot) -> list[Command]:
    """The commands that bring every task one move on, in the order to carry them out."""
    world = World.of(snapshot)
    endings = _endings(world)
    over = {ending.task for ending in endings}
    admissions = _admissions(world)
    preparations = _preparations(world, over)
    openings = _openings(world)
    groups = dispatch_groups(world, over)
    training = dispatch_passes(world, over)
    changed = over | {a.task for a in admissions} | {o.task for o in openings}
    explanations = explain_tasks(world, changed, groups, training)
    return [
        *endings,
        *admissions,
        *preparations,
        *openings,
        *groups.commands,
        *training.commands,
        *explanations,
    ]


def _endings(world: World) -> list[End]:
    """Running tasks that have all their versions, or whose own work failed for good."""
    endings = []
    for task in world.tasks:
        if task.state != "running":
            continue
        if failure := _failure(task):
            endings.append(End(task.id, "failed", failure))
        elif task.version >= task.max_steps:
            endings.append(End(task.id, "succeeded", f"all {task.max_steps} steps are done"))
    return endings


def _failure(task: TaskView) -> str:
    """Why the task cannot go on, or ""."""
    if task.prepare_error and task.version < 0:
        return task.prepare_error
    if task.step is None:
        return ""
    works: list[StepView | GroupView] = [task.step, *task.step.groups]
    for work in works:
        if work.errors >= MAX_ERRORS:
            return work.last_error or f"failed {work.errors} times without saying why"
    if task.step.fence > MAX_ATTEMPTS:
        return f"step {task.step.number + 1} was lost by its trainer {MAX_ATTEMPTS} times"
    for group in task.step.groups:
        if group.state != "finished" and group.attempt > MAX_ATTEMPTS:
            return f"group {group.index + 1} was lost by its workers {MAX_ATTEMPTS} times"
    return ""


def _admissions(world: World) -> list[Admit]:
    """Queued tasks in order of submission, as far as their tenants' quotas go.

    A tenant at its limit holds up nobody else's.
    """
    active = Counter(task.tenant for task in world.tasks if task.state != "queued")
    admissions = []
    for task in world.tasks:
        tenant = world.tenant_of(task)
        limit = tenant.max_concurrent_tasks
        if task.state != "queued" or tenant.is_suspended or 0 < limit <= active[tenant.id]:
            continue
        active[tenant.id] += 1
        admissions.append(Admit(task.id))
    return admissions


def _preparations(world: World, over: set[str]) -> list[Prepare]:
    """Running tasks without version 0, unless asked for lately."""
    return [
        Prepare(task.id)
        for task in world.tasks
        if world.may_start(task)
        and task.id not in over
        and task.version < 0
        and (
            task.prepare_sent_at == 0
            or abs(world.snapshot.now - task.prepare_sent_at) >= PREPARE_RETRY_S
        )
    ]


def _openings(world: World) -> list[OpenStep]:
    """The next step of every task that has none. A step once open is finished, quota or not."""
    return [
        OpenStep(task.id, task.version)
        for task in world.tasks
        if world.may_start(task)
        and task.step is None
        and 0 <= task.version < task.max_steps
        and not over_quota(world.tenant_of(task))
        and not world.tenant_of(task).is_full
    ]
