"""What each task is doing or waiting for, as a phase and one plain sentence.

A reason is stored and shown whenever it changes, so it holds no times and no running totals: it
changes when a group, a step or a place in a line does. It names no other tenant.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, defaultdict

from .pacing import PACED
from .passes import TrainingLine
from .priority import aged_priority
from .queue_order import queued_tasks
from .rollouts import Dispatches
from .room import SEQUENCES
from .snapshot import Explain, StepView, TaskView, TenantView
from .world import World

MAX_TOLD_PLACES = 10  # in a tenant's queue


def explain_tasks(
    world: World, changed: set[str], groups: Dispatches, line: TrainingLine
) -> list[Explain]:
    """One Explain for each task whose phase, reason or queue position is not what it holds.

    changed: tasks that this plan admits, opens a step for or ends; the next plan explains them.
    """
    positions = queue_positions(world, changed)
    preferred = _Preferred(world)
    sent = Counter(command.task for command in groups.commands)
    in_line = line.places()
    commands = []
    for task in world.tasks:
        if task.id in changed:
            continue
        lack = groups.lacks.get(task.id, "")
        if lack.startswith(PACED):
            lack = f"{lack}{preferred.text(task)}"
        phase, reason = _explanation(
            world, task, sent.get(task.id, 0), lack, in_line.get(task.id, 0)
        )
        position = positions.get(task.id, 0)
        if (phase, reason, position) != (task.phase, task.reason, task.queue_position):
            commands.append(Explain(task.id, phase, reason, position))
    return commands


class _Preferred:
    """Which of a task's own tenant's tasks go before it, by priority alone."""

    def __init__(self, world: World) -> None:
        self._world = world
        # By tenant and base model; made when first asked for, since most plans hold nobody back
        self._priorities: dict[tuple[str, str], list[float]] = {}

    def text(self, task: TaskView) -> str:
        """To go on with after a reason; "" if none goes before it.

        Those count that will go on beginning steps, whether or not they have one just now: a count
        that fell and rose with each of their steps would be written every time.
        """
        own = self._effective(task)
        known = self._known(task.tenant, task.base_model)
        num = len(known) - bisect_right(known, own)
        if not num:
            return ""
        go = "goes" if num == 1 else "go"
        return f"; {num} of your tasks with higher priority {go} first"

    def _known(self, tenant: str, base_model: str) -> list[float]:
        if not self._priorities:
            found: dict[tuple[str, str], list[float]] = defaultdict(list)
            for task in self._world.tasks:
                if self._world.may_start(task) and task.version < task.max_steps:
                    found[task.tenant, task.base_model].append(self._effective(task))
            self._priorities = {key: sorted(values) for key, values in found.items()}
        return self._priorities.get((tenant, base_model), [])

    def _effective(self, task: TaskView) -> float:
        """With what waiting has added to it."""
        steps = (step for step in task.steps if step.waiting)
        step = next(steps, None)
        return aged_priority(task, step, self._world.snapshot.now) if step else task.priority


def queue_positions(world: World, admitted: set[str]) -> dict[str, int]:
    """1 for the queued task that its tenant's quota lets in next, up to MAX_TOLD_PLACES.

    Tenants do not wait for each other, and how many tasks others have queued is not for strangers.
    All places move on when the first goes; were every one told, each would cost writes.
    """
    places: dict[str, int] = {}
    num_before: Counter[str] = Counter()
    for task in queued_tasks(world):
        if task.id not in admitted:
            num_before[task.tenant] += 1
            places[task.id] = num_before[task.tenant]
    return {task: place for task, place in places.items() if place <= MAX_TOLD_PLACES}


def over_quota(tenant: TenantView) -> bool:
    """Whether the tenant has used up its tokens of today."""
    return 0 < tenant.tokens_per_day <= tenant.tokens_today


def _explanation(world: World, task: TaskView, sent: int, lack: str, place: int) -> tuple[str, str]:
    """(phase, reason). sent: groups of the task that this plan dispatches; lack: why no more;
    place: of the task in the line for a trainer, from 1 on; 0 if it does not stand there."""
    tenant = world.tenant_of(task)
    if task.state == "queued":
        return "queued", _queued_reason(tenant)
    if task.state == "paused":
        return "paused", "paused"
    if tenant.is_suspended:
        return "paused", "your organisation is suspended: nothing new is started"
    if task.version < 0:
        return "preparing", "preparing the prompts and the first version"
    if not task.steps:
        return "rollout", _unopened_reason(world, task)
    step = task.steps[0]  # later ones wait for it
    if step.state == "open":
        return _rollout_explanation(world, task, step, sent, lack)
    return _training_explanation(world, task, step, place)


def _queued_reason(tenant: TenantView) -> str:
    """The same for all that wait: were it to count, each start would be written to each of them."""
    if tenant.is_suspended:
        return "your organisation is suspended"
    return f"your organisation runs as many tasks as it may at once, {tenant.max_concurrent_tasks}"


def _unopened_reason(world: World, task: TaskView) -> str:
    """Of a task that has no step and got none now: its tenant's quota keeps it so, or a policy
    that nobody ships."""
    tenant = world.tenant_of(task)
    if not world.may_start(task) or world.policy.has_barrier:
        return f"waiting for other tasks: the policy is {world.policy.name}"
    if tenant.is_full:
        return "storage quota used: no step is begun; ask an operator to raise it"
    return f"daily token quota of {tenant.tokens_per_day:,} used; resets at 00:00 UTC"


def _rollout_explanation(
    world: World, task: TaskView, step: StepView, sent: int, lack: str
) -> tuple[str, str]:
    heading = f"step {step.number + 1} of {task.max_steps}"
    waiting = len(step.waiting)
    is_generated = not waiting and _is_all_in_environment(world, step)
    if not is_generated and not world.workers("rollout", task.base_model):
        return "rollout", f"no rollout worker for {task.base_model} is running"
    if waiting > sent:
        what = _wait(lack)
        return "rollout", f"{heading}: {waiting - sent} of {step.num_groups} groups {what}"
    phase = "environment" if is_generated else "rollout"
    return phase, f"{heading}: {step.num_finished} of {step.num_groups} groups finished"


def _wait(lack: str) -> str:
    """That all sequences are taken is the usual thing; anything else is worth a word."""
    if lack in ("", SEQUENCES):
        return "waiting for generation"
    if lack.startswith(PACED):
        first = lack.removeprefix(PACED)  # whom the task's own tenant prefers
        return f"not begun yet: the trainer has enough steps before them{first}"
    return f"waiting for room in the engine: {lack}"


def _is_all_in_environment(world: World, step: StepView) -> bool:
    """Whether every trajectory that is still under way has left the rollout workers."""
    places = [presence.place for presence in step.presences]
    return bool(places) and all(_is_environment(world, place) for place in places)


def _is_environment(world: World, place: str) -> bool:
    kind, _, name = place.partition(":")
    if kind == "queue":
        return name == "environment"
    worker = world.live.get(name)
    return worker is not None and worker.kind == "environment"


def _training_explanation(
    world: World, task: TaskView, step: StepView, place: int
) -> tuple[str, str]:
    if not place:
        return "training", f"step {step.number + 1} of {task.max_steps}: training"
    if not world.workers("training", task.base_model):
        return "ready", f"no training worker for {task.base_model} is running"
    return "ready", f"waiting to train, {ordinal(place)} in line"


def ordinal(number: int) -> str:
    """1st, 2nd, 3rd, 4th, 11th, 21st, …"""
    if number % 100 in (11, 12, 13):
        return f"{number}th"
    return f"{number}{ {1: 'st', 2: 'nd', 3: 'rd'}.get(number % 10, 'th') }"
