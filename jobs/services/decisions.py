"""The planner's last decisions with what they were based on, for operators.

Kept in one Redis list of bounded length, written when a plan's transaction has ended: neither the
planner's locks nor the database wait for it, and what is lost with Redis is history and no state.
Groups of a step that a plan sends alike are one entry. What explains tasks to their people is not
here: that is on their pages.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import msgpack
from django.conf import settings
from redis.exceptions import RedisError

from engine.manager.room import is_rollout_queue
from engine.manager.snapshot import (
    Admit,
    Command,
    DispatchGroup,
    DispatchTraining,
    End,
    OpenStep,
    Prepare,
    SetConcurrency,
    Snapshot,
    TaskView,
)
from jobs.services.joins import redis

log = logging.getLogger(__name__)

KEPT = 4_000  # entries, of about 300 bytes
KEY = f"{settings.REDIS_PREFIX}:planner:decisions"

KINDS: dict[type, str] = {
    Admit: "admit",
    Prepare: "prepare",
    OpenStep: "open step",
    DispatchGroup: "send groups",
    DispatchTraining: "train",
    End: "end",
    SetConcurrency: "limit",
}


@dataclass(frozen=True)
class Basis:
    """What the planner saw of a base model and, for a task's command, of the task."""

    base_model: str
    in_flight: int = 0  # sequences with the engines or on their way
    away: int = 0  # of episodes that wait for their environments
    waiting: int = 0  # groups not sent yet
    line: int = 0  # steps that are ready or with a trainer
    slots: int = 0  # of its living rollout workers
    limit: int = 0  # sequences at once, as found by feedback; 0: none
    tenant_time: float | None = None  # virtual times before, device-seconds by weight
    task_time: float | None = None
    priority: int = 0


@dataclass(frozen=True)
class Decision:
    """One command, or several groups of a step that were sent alike."""

    at: float  # epoch s
    kind: str
    basis: Basis
    task: str = ""  # id
    tenant: str = ""  # id
    step: int | None = None
    groups: tuple[int, ...] = ()  # their indexes
    attempt: int = 0
    cost_s: float = 0.0  # device-seconds charged
    tenant_time: float | None = None  # virtual time afterwards
    cause: str = ""  # why again, why it ended, or what was found


@dataclass
class _Sight:
    """The base models and tasks of a snapshot, looked at once for all commands of a plan."""

    snapshot: Snapshot
    bases: dict[str, Basis] = field(default_factory=dict)
    places: dict[tuple[str, int], dict[str, int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.tasks = {task.id: task for task in self.snapshot.tasks}
        self.times = {tenant.id: tenant.virtual_time for tenant in self.snapshot.tenants}

    def basis(self, base_model: str) -> Basis:
        if base_model not in self.bases:
            self.bases[base_model] = _basis(self.snapshot, base_model)
        return self.bases[base_model]

    def index_of(self, task: TaskView, command: DispatchGroup) -> int:
        """The place of the command's group in its step."""
        key = (task.id, command.step)
        if key not in self.places:
            step = next(step for step in task.steps if step.number == command.step)
            self.places[key] = {group.id: group.index for group in step.groups}
        return self.places[key][command.group]

    def basis_of(self, task: TaskView) -> Basis:
        return replace(
            self.basis(task.base_model),
            tenant_time=self.times.get(task.tenant),
            task_time=task.virtual_time,
            priority=task.priority,
        )


def _basis(snapshot: Snapshot, base_model: str) -> Basis:
    workers = [w for w in snapshot.workers if w.kind == "rollout" and base_model in w.base_models]
    engines = {f"worker:{worker.incarnation}" for worker in workers}
    counts: Counter[str] = Counter()
    for task in snapshot.tasks:
        for step in task.steps if task.base_model == base_model else ():
            counts["waiting"] += len(step.waiting)
            counts["line"] += step.state != "open"
            counts["in_flight"] += len(step.unseen) * task.group_size
            for presence in step.presences:
                near = presence.place in engines or is_rollout_queue(presence.place)
                counts["in_flight" if near else "away"] += presence.count
    limits = [c.limit for c in snapshot.concurrency if c.base_model == base_model]
    slots = sum(worker.slots for worker in workers)
    return Basis(base_model, slots=slots, limit=limits[0] if limits else 0, **counts)


def decisions_of(snapshot: Snapshot, commands: Sequence[Command]) -> list[Decision]:
    """The commands of a plan that are worth telling, in order."""
    worth_telling = [command for command in commands if type(command) in KINDS]
    if not worth_telling:
        return []
    sight = _Sight(snapshot)
    found: list[Decision] = []
    for command in worth_telling:
        for decision in _told(sight, command):
            if found and (merged := _merged(found[-1], decision)):
                found[-1] = merged
            else:
                found.append(decision)
    return found


def _told(sight: _Sight, command: Command) -> Iterator[Decision]:
    """One, or none."""
    kind, now = KINDS[type(command)], sight.snapshot.now
    if isinstance(command, SetConcurrency):
        new = command.concurrency
        basis = sight.basis(new.base_model)
        if new.limit != basis.limit:
            cause = f"{basis.limit or 'no limit'} → {new.limit or 'no limit'} sequences"
            yield Decision(now, kind, basis, cause=cause)
        return
    task = sight.tasks[command.task]
    about: dict[str, Any] = {}
    if isinstance(command, OpenStep):
        about = {"step": command.number, "cause": _version_told(command)}
    elif isinstance(command, DispatchTraining):
        about = {"step": command.step, "attempt": command.fence, "cause": command.cause}
    elif isinstance(command, End):
        about = {"cause": f"{command.state}: {command.reason}"}
    elif isinstance(command, DispatchGroup):
        about = {
            "step": command.step,
            "groups": (sight.index_of(task, command),),
            "attempt": command.attempt,
            "cost_s": command.cost,
            "tenant_time": command.virtual_time,
            "cause": command.cause,
        }
    yield Decision(now, kind, sight.basis_of(task), task.id, task.tenant, **about)


def _version_told(command: OpenStep) -> str:
    staleness = command.number - command.version
    return f"generated by version {command.version}, {staleness} behind" if staleness else ""


def _merged(one: Decision, other: Decision) -> Decision | None:
    """Both as one, if they are groups of a step that are sent for the same reason."""
    names = ("kind", "task", "step", "attempt", "cause")
    if not one.groups or any(getattr(one, name) != getattr(other, name) for name in names):
        return None
    groups, cost_s = (*one.groups, *other.groups), one.cost_s + other.cost_s
    return replace(one, groups=groups, cost_s=cost_s, tenant_time=other.tenant_time)


def record_decisions(snapshot: Snapshot, commands: Sequence[Command]) -> None:
    """Keep what a plan decided. Never raises for want of Redis."""
    packed = [msgpack.packb(asdict(one)) for one in decisions_of(snapshot, commands)]
    if not packed:
        return
    try:
        with redis.pipeline(transaction=False) as pipe:
            pipe.lpush(KEY, *packed)
            pipe.ltrim(KEY, 0, KEPT - 1)
            pipe.execute()
    except RedisError as error:
        log.warning("%d decisions of the planner not kept: %s", len(packed), error)


def recent_decisions() -> Iterator[Decision]:
    """What is kept, newest first; what another version kept otherwise is left out.

    Raises: RedisError.
    """
    for data in redis.lrange(KEY, 0, -1):
        try:
            found = msgpack.unpackb(data)
            yield Decision(
                **{**found, "basis": Basis(**found["basis"]), "groups": tuple(found["groups"])}
            )
        except (ValueError, TypeError, KeyError, msgpack.UnpackException):
            continue
