"""Simulated workers: what each kind does with a message, and how long it takes.

A worker holds what it works on in memory only. Whatever it scheduled before it was killed finds it
dead and does nothing. A silent worker goes on working while it no longer beats: to the planner it
is dead, so its results come late.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from engine.manager.snapshot import WorkerView

from .broker import Broker, GroupMessage, PassMessage, SampleMessage
from .clock import Clock
from .facts import Sample
from .faults import Faults
from .store import REPORTED_ERROR, Store

BEAT_S = 2.0
GENERATE_S = (0.3, 3.0)
GRADE_S = (0.05, 1.0)
STORE_S = (0.0, 0.3)  # writing a payload or an adapter
SLOW_STORE_S = (5.0, 30.0)
TRAIN_S = (0.5, 4.0)
SIZE = (4, 16)  # tokens of a trajectory; ten are expected


@dataclass(frozen=True)
class Machine:
    """What a worker has at hand: everything outside its own memory."""

    clock: Clock
    store: Store
    broker: Broker
    faults: Faults
    changed: Callable[[], None]  # rings the planner


@dataclass(frozen=True)
class Role:
    """What stays the same over the restarts of a worker."""

    name: str
    kind: str
    base_models: tuple[str, ...]
    slots: int  # pieces of work at once
    kv_tokens: int = 0  # of a rollout worker's engine
    adapter_slots: int = 0

    @property
    def queues(self) -> list[str]:
        if self.kind == "environment":
            return ["environment"]
        return [f"{self.kind}.{base_model}" for base_model in self.base_models]


class Worker:
    """One life of one process."""

    def __init__(self, role: Role, incarnation: str, machine: Machine) -> None:
        self.role, self.incarnation, self.machine = role, incarnation, machine
        self.started_at = machine.clock.now
        self.is_alive = True
        self.held: list[Sample | PassMessage] = []
        self._silent_from = self._silent_until = 0.0
        self._last_beat_at = machine.clock.now
        self._figures = self.figures(machine.clock.now)  # as of the last beat

    def __str__(self) -> str:
        return self.incarnation

    @property
    def place(self) -> str:
        return f"worker:{self.incarnation}"

    def view(self) -> WorkerView:
        slots = self.role.slots if self.role.kind == "rollout" else 0
        return WorkerView(
            incarnation=self.incarnation,
            name=self.role.name,
            kind=self.role.kind,
            base_models=self.role.base_models,
            started_at=self.started_at,
            last_beat_at=self._beat(),
            slots=slots,
            **self._figures,
        )

    def _beat(self) -> float:
        """When it beat last; beats are worked out when somebody looks."""
        now = self.machine.clock.now
        beat = now - now % BEAT_S
        if self.is_alive and now >= self._silent_until and beat > self._last_beat_at:
            self._last_beat_at, self._figures = beat, self.figures(beat)
        return self._last_beat_at

    def figures(self, at: float) -> dict[str, int]:
        """What a beat tells of what is held; `_beat` comes before every change of that."""
        return {}

    def fall_silent(self, seconds: float) -> None:
        """Stop beating, and nothing else."""
        self._beat()
        self._silent_until = self.machine.clock.now + seconds

    def die(self) -> None:
        """kill -9: everything in memory is gone."""
        self._beat()
        self.is_alive = False
        self.held.clear()

    def has_room(self) -> bool:
        return self.is_alive and len(self.held) < self.role.slots

    def take(self) -> bool:
        """Take the next message of its queues; False if it has no room or there is none."""
        if not self.has_room():
            return False
        for queue in self.role.queues:
            message = self.machine.broker.pop(queue)
            if message is not None:
                self._begin(message)
                return True
        return False

    def _begin(self, message: object) -> None:
        raise NotImplementedError

    def _after(self, span_s: tuple[float, float], call: Callable[..., None], *args: object) -> None:
        """Call later, unless this life is over by then."""
        delay_s = self.machine.faults.rng.uniform(*span_s)
        self.machine.clock.after(delay_s, self.resume, call, *args)

    def resume(self, call: Callable[..., None], *args: object) -> None:
        if self.is_alive:
            call(*args)

    def _release(self, held: Sample | PassMessage) -> None:
        """Done with it; room for the next message."""
        self._beat()
        self.held.remove(held)
        while self.take():
            pass


class RolloutWorker(Worker):
    """Generates the trajectories of groups; says with each which adapter it applied.

    A trajectory's KV grows to its size, which is the expected one only on average.
    """

    def figures(self, at: float) -> dict[str, int]:
        """KV and adapters as the engine tells them: what does not fit waits, and takes none."""
        samples = [held for held in self.held if isinstance(held, Sample)]
        grown = sum(
            sample.num_tokens * min(1.0, (at - sample.began_at) / GENERATE_S[1])
            for sample in samples
        )
        return {
            "kv_tokens": self.role.kv_tokens,
            "kv_tokens_free": max(0, round(self.role.kv_tokens - grown)),
            "adapter_slots": self.role.adapter_slots,
        }

    def _begin(self, message: object) -> None:
        assert isinstance(message, GroupMessage)
        self._beat()
        faults, broker, store = self.machine.faults, self.machine.broker, self.machine.store
        indexes = range(message.size)
        if not broker.move(message.group, message.attempt, indexes, self.place):
            store.num_late += 1
            return
        task, _, group = store.group(message.group)
        is_unlucky = faults.happens(faults.rates.stage_error) and group.errors == 0
        if task.poison == "grader" or is_unlucky:
            error = REPORTED_ERROR.format(part="grader", task=task.id)
            self._after(GENERATE_S, self._fail, message.group, message.attempt, error)
            return
        digest = message.digest
        if faults.happens(faults.rates.wrong_adapter) and group.errors == 0:
            digest = faults.rng.choice([d for t in store.tasks.values() for _, d in t.versions])
        for index in indexes:
            num_tokens, now = faults.rng.randint(*SIZE), self.machine.clock.now
            sample = Sample(message.group, message.attempt, index, digest, num_tokens, now)
            self.held.append(sample)
            self._after(GENERATE_S, self._generated, message.task, sample)

    def _generated(self, task: str, sample: Sample) -> None:
        broker = self.machine.broker
        if broker.move(sample.group, sample.attempt, [sample.index], "queue:environment"):
            broker.send("environment", SampleMessage(task, sample))
        self._release(sample)

    def _fail(self, group: str, attempt: int, error: str) -> None:
        self.machine.store.return_group(group, attempt, error)
        self.machine.changed()


class EnvironmentWorker(Worker):
    """Grades trajectories, joins their groups, and stores a group when it is full."""

    def _begin(self, message: object) -> None:
        assert isinstance(message, SampleMessage)
        sample = message.sample
        if not self.machine.broker.move(sample.group, sample.attempt, [sample.index], self.place):
            self.machine.store.num_late += 1
            return
        self.held.append(sample)
        self._after(GRADE_S, self._graded, sample)

    def _graded(self, sample: Sample) -> None:
        broker, faults = self.machine.broker, self.machine.faults
        outcome = broker.join(sample)
        if outcome == "full":
            is_slow = faults.happens(faults.rates.slow_store)
            samples = broker.collect(sample.group, sample.attempt)
            self._after(SLOW_STORE_S if is_slow else STORE_S, self._store, sample, samples)
            return
        if outcome == "late":
            self.machine.store.num_late += 1
        self._release(sample)

    def _store(self, sample: Sample, samples: tuple[Sample, ...]) -> None:
        """The payload is written; now the row, if the attempt is still wanted."""
        self.machine.store.finish_group(sample.group, sample.attempt, samples)
        self.machine.broker.forget(sample.group, sample.attempt)
        self.machine.changed()
        self._release(sample)


class TrainingWorker(Worker):
    """One pass at a time: reads the step's groups, trains, commits under its fence."""

    def _begin(self, message: object) -> None:
        assert isinstance(message, PassMessage)
        store = self.machine.store
        if not store.take_pass(message.task, message.step, message.fence, self.incarnation):
            return
        self.held.append(message)
        batch = store.batch(message.task, message.step)
        self._after(TRAIN_S, self._trained, message, batch)

    def _trained(self, message: PassMessage, batch: tuple[tuple[Sample, ...], ...]) -> None:
        store, faults = self.machine.store, self.machine.faults
        task = store.tasks[message.task]
        mine = (message.task, message.step, message.fence, self.incarnation)
        errors = next(step.errors for step in task.steps if step.number == message.step)
        is_unlucky = faults.happens(faults.rates.stage_error) and errors == 0
        if task.poison == "training" or is_unlucky:
            store.fail_pass(*mine, REPORTED_ERROR.format(part="training", task=task.id))
        else:
            digest = f"{task.id}@{message.step + 1}#{faults.rng.getrandbits(32):08x}"
            store.commit_version(*mine, digest, batch)
        self.machine.changed()
        self._release(message)


KINDS: dict[str, type[Worker]] = {
    "rollout": RolloutWorker,
    "environment": EnvironmentWorker,
    "training": TrainingWorker,
}
