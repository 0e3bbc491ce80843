"""What the engines of one base model have room for while a plan is made: sequences, KV, adapters.

Nothing is promised twice. A trajectory in flight takes a sequence while it is with the rollout
workers or on its way to them: one that waits for a tool holds up nobody. It takes
the KV that it may be expected to fill while it is with the rollout workers or on its way to them;
its task takes an adapter slot of every worker as long, for any of them may be given its groups.
Of KV, a worker has left what it said was free at its last beat, or what is left of the whole once
all that this beat covers has grown to its expected size, whichever is less; what was sent since
counts besides, until a beat covers it. What an engine does not say does not bound it.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from math import floor, inf

from .snapshot import Presence, StepView, TaskView, WorkerView
from .world import World

IN_FLIGHT_PER_SLOT = 1.5  # half as much again waits in the queue, so that no engine runs dry
# Those that wait for tools counted, too: when all of them come back at once they wait in the queue.
EPISODES_PER_SLOT = 8

ENVIRONMENT_QUEUE = "queue:environment"
SEQUENCES = "all its sequences are taken"
EPISODES = "as many episodes as it may have wait for their environments"
KV = "its memory for tokens is taken"
ADAPTERS = "other tasks use all its adapter slots"


class Room:
    """Promises on the living rollout workers of a base model."""

    def __init__(self, world: World, base_model: str) -> None:
        workers = world.workers("rollout", base_model)
        self._workers = {f"worker:{worker.incarnation}": worker for worker in workers}
        self._away_places = {ENVIRONMENT_QUEUE, *world.environment_places}
        slots = sum(worker.slots for worker in workers)
        self._capacity = floor(IN_FLIGHT_PER_SLOT * slots)
        if limit := world.concurrency_limit(base_model):
            self._capacity = min(self._capacity, limit)
        self._max_episodes = EPISODES_PER_SLOT * slots
        self._adapter_slots = min((w.adapter_slots for w in workers if w.adapter_slots), default=0)
        if not world.policy.is_multi_lora:
            self._adapter_slots = 1
        self._in_flight = 0  # sequences
        self._away = 0  # of these, with the environment
        # Tokens by worker, as of its last beat
        self._covered: dict[str, float] = defaultdict(float)
        self._promised = 0.0  # tokens that no beat covers yet
        self._tasks: set[str] = set()  # whose adapters are in use, or are about to be

    def add_flight(self, task: TaskView, step: StepView, lost: set[str]) -> None:
        """Count what the dispatched groups of a step take, but for the lost ones."""
        presences = step.presences
        if lost:
            groups = tuple(group for group in step.dispatched if group.id not in lost)
            presences = replace(step, groups=groups).presences
        for group in step.unseen:
            if group.id not in lost:
                self.promise(task)
        for presence in presences:
            self._in_flight += presence.count
            if presence.place in self._away_places:
                self._away += presence.count
            elif worker := self._workers.get(presence.place):
                self._add_generating(task, step, presence, worker, lost)
            elif is_rollout_queue(presence.place):
                self._promise(task, presence.count)

    def _add_generating(
        self, task: TaskView, step: StepView, presence: Presence, worker: WorkerView, lost: set[str]
    ) -> None:
        seen = presence.count
        if presence.latest > worker.last_beat_at:
            seen = sum(
                where.count
                for group in step.dispatched
                for where in group.whereabouts
                if where.place == presence.place
                and where.since <= worker.last_beat_at
                and group.id not in lost
            )
        self._covered[presence.place] += _kv_tokens(task, seen)
        self._tasks.add(task.id)
        if seen < presence.count:
            self._promise(task, presence.count - seen)

    def promise(self, task: TaskView) -> None:
        """Count a group that is dispatched now."""
        self._in_flight += task.group_size
        self._promise(task, task.group_size)

    def _promise(self, task: TaskView, sequences: int) -> None:
        self._promised += _kv_tokens(task, sequences)
        self._tasks.add(task.id)

    def lack(self, task: TaskView) -> str:
        """What another group of the task would have to wait for, in words; "" if it may go.

        One group may always go alone, however large.
        """
        if not self._workers:
            return SEQUENCES
        if self._in_flight == 0:
            return ""
        if task.id not in self._tasks and 0 < self._adapter_slots <= len(self._tasks):
            return ADAPTERS
        if self._in_flight - self._away + task.group_size > self._capacity:
            return SEQUENCES
        if self._in_flight + task.group_size > max(self._capacity, self._max_episodes):
            return EPISODES
        if _kv_tokens(task, task.group_size) > self._kv_tokens_free():
            return KV
        return ""

    def _kv_tokens_free(self) -> float:
        """Tokens not promised to anyone; no bound if one of the workers does not say."""
        if not all(worker.kv_tokens for worker in self._workers.values()):
            return inf
        free = sum(
            min(worker.kv_tokens_free, worker.kv_tokens - self._covered[place])
            for place, worker in self._workers.items()
        )
        return free - self._promised


def is_rollout_queue(place: str) -> bool:
    """Whether that is the shared queue of a base model, or the own one of a rollout worker."""
    return place.startswith("queue:rollout.")


def _kv_tokens(task: TaskView, sequences: int) -> float:
    """Tokens of KV that so many trajectories of the task may be expected to fill."""
    return (task.group_kv or task.group_cost) * sequences / max(1, task.group_size)
