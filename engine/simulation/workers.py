"""A simulated worker: one life of a process that takes messages, works on them, and beats.

It holds what it works on in memory only. Whatever it scheduled before it was killed finds it dead
and does nothing. A silent worker goes on working while it no longer beats: to the planner it is
dead, so its results come late. What each kind does with a message stands in stages.py.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from engine.manager.snapshot import WorkerView

from .broker import Broker, PassMessage
from .clock import Clock
from .facts import Sample
from .faults import Faults
from .store import Store

BEAT_S = 2.0
RETRY_S = (0.1, 2.0)  # until a transaction that met a conflict is tried again


@dataclass(frozen=True)
class Machine:
    """What a worker has at hand: everything outside its own memory."""

    clock: Clock
    store: Store
    broker: Broker
    faults: Faults
    changed: Callable[[], None]  # rings the planner
    is_living: Callable[[str], bool]  # whether a worker of that name beat lately


@dataclass(frozen=True)
class Role:
    """What stays the same over the restarts of a worker."""

    name: str
    kind: str
    base_models: tuple[str, ...]
    slots: int  # pieces of work at once
    kv_tokens: int = 0  # of a rollout worker's engine
    adapter_slots: int = 0
    slowness: float = 1.0  # times what its work usually takes

    @cached_property
    def queues(self) -> tuple[str, ...]:
        """Those it reads, in order: first the one for later turns, that it alone reads."""
        if self.kind == "environment":
            return ("environment",)
        shared = [f"{self.kind}.{base_model}" for base_model in self.base_models]
        own = [f"{queue}.{self.name}" for queue in shared] if self.kind == "rollout" else []
        return (*own, *shared)


class Worker:
    """One life of one process."""

    def __init__(self, role: Role, incarnation: str, machine: Machine) -> None:
        self.role, self.incarnation, self.machine = role, incarnation, machine
        self.place = f"worker:{incarnation}"
        self.started_at = machine.clock.wall
        self.is_alive = True
        self.held: list[Sample | PassMessage] = []
        self._silent_until = 0.0
        self._beat_no = int(machine.clock.now / BEAT_S)  # beats come by `now`
        self._last_beat_at = machine.clock.wall
        self._figures: dict[str, Any] = self.figures(machine.clock.now)  # as of the last beat
        self._view: WorkerView | None = None

    def __str__(self) -> str:
        return self.incarnation

    def view(self) -> WorkerView:
        """As its row says, which changes with a beat."""
        last_beat_at = self.beat()
        if self._view is None:
            self._view = WorkerView(
                incarnation=self.incarnation,
                name=self.role.name,
                kind=self.role.kind,
                base_models=self.role.base_models,
                started_at=self.started_at,
                last_beat_at=last_beat_at,
                slots=self.role.slots if self.role.kind == "rollout" else 0,
                **self._figures,
            )
        return self._view

    def beat(self) -> float:
        """By its clock, when it beat last; beats are worked out when somebody looks."""
        clock = self.machine.clock
        number = int(clock.now / BEAT_S)
        if number > self._beat_no and self.is_alive and clock.now >= self._silent_until:
            self._beat_no, self._last_beat_at = number, number * BEAT_S + clock.skew_s
            self._figures, self._view = self.figures(number * BEAT_S), None
        return self._last_beat_at

    def figures(self, at: float) -> dict[str, Any]:
        """What a beat tells of what is held; `beat` comes before every change of that."""
        return {}

    def fall_silent(self, seconds: float) -> None:
        """Stop beating, and nothing else."""
        self.beat()
        self._silent_until = self.machine.clock.now + seconds

    def die(self) -> None:
        """kill -9: everything in memory is gone."""
        self.beat()
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
                self.begin(message)
                return True
        return False

    def begin(self, message: object) -> None:
        raise NotImplementedError

    def after(self, span_s: tuple[float, float], call: Callable[..., None], *args: object) -> None:
        """Call later, unless this life is over by then."""
        shortest, longest = span_s
        delay_s = shortest + (longest - shortest) * self.machine.faults.rng.random()
        self.machine.clock.after(delay_s, self.resume, call, *args)

    def resume(self, call: Callable[..., None], *args: object) -> None:
        if self.is_alive:
            call(*args)

    def transact(
        self, call: Callable[..., None], give_up: Callable[..., None], *args: object
    ) -> None:
        """Call, in a transaction. One that meets a conflict is tried again, or given up."""
        faults = self.machine.faults
        if not faults.happens(faults.rates.conflict):
            call(*args)
        elif faults.rng.random() < 0.5:
            self.machine.clock.note("conflict, to be tried again", self, call)
            self.after(RETRY_S, self.transact, call, give_up, *args)
        else:
            self.machine.clock.note("conflict, given up", self, call)
            give_up(*args)

    def release(self, held: Sample | PassMessage) -> None:
        """Done with it; room for the next message."""
        self.beat()
        self.held.remove(held)
        while self.take():
            pass
