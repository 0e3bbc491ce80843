"""The simulated cluster: a database, a Redis, workers, a planner process and the people who use it.

Everything happens as events of one clock and by the dice of one generator, so a seed is a run. The
planner process takes a snapshot, and carries its commands out a little later, when some of what it
decided on has changed.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from engine.manager.snapshot import (
    Command,
    DispatchGroup,
    DispatchTraining,
    Explain,
    Prepare,
    SetConcurrency,
    Snapshot,
)

from .broker import Broker, GroupMessage, PassMessage
from .clock import Clock
from .facts import Planned
from .faults import Faults, Rates
from .people import People
from .snapshots import take_snapshot
from .store import Store
from .workers import KINDS, Machine, Role, Worker

Plan = Callable[[Snapshot], list[Command]]

PLAN_EVERY_S = 1.0  # whatever happens
PLAN_SOON_S = 0.05  # after something changed: 20 plans a second at most
APPLY_S = (0.0, 0.03)  # from a snapshot to the transaction that carries out the plan
PREPARE_S = (0.1, 1.0)
RESTART_S = (0.5, 15.0)  # from a kill to the next life: shorter and longer than a lease
SILENCE_S = (8.0, 25.0)
BASE_MODELS = ("alpha", "beta")
ROLES = (
    Role("rollout-alpha", "rollout", ("alpha",), 6, kv_tokens=70, adapter_slots=3),
    Role("rollout-alpha-2", "rollout", ("alpha",), 4, kv_tokens=50, adapter_slots=2),
    Role("rollout-beta", "rollout", ("beta",), 6, kv_tokens=75, adapter_slots=2),
    Role("environment-1", "environment", (), 16),
    Role("environment-2", "environment", (), 16),
    Role("trainer-both", "training", BASE_MODELS, 1),
    Role("trainer-beta", "training", ("beta",), 1),
)


class Cluster:
    """All parts, wired. `start` schedules the first events; the runner steps the clock."""

    def __init__(self, seed: int, plan: Plan, store: Store, rates: Rates) -> None:
        self.clock = Clock()
        self.faults = Faults(Random(seed), rates)
        self.store = store
        self.broker = Broker(self.clock, self.faults.fate, self.faults.place, self._arrived)
        self.machine = Machine(self.clock, store, self.broker, self.faults, self._ring)
        self.workers: dict[str, Worker] = {}  # by name: the present life, dead or alive
        self.people = People(self.machine, BASE_MODELS)
        self._plan = plan
        self._num_lives = 0
        self._is_rung = self._is_planning = False

    def start(self) -> None:
        for role in ROLES:
            self._start_worker(role)
        self.people.found()
        self.clock.after(0.0, self._plan_by_the_clock)
        self.clock.after(self.faults.pause_s(self.faults.rates.between_disasters_s), self._disaster)
        self.clock.after(self.faults.pause_s(self.faults.rates.between_visits_s), self._visit)

    def heal(self) -> None:
        """From now on nothing fails, nobody interferes, and every task may run to its end."""
        self.faults.stop()
        self.people.leave()
        self.clock.note("heal")
        self._ring()

    # Workers

    def _start_worker(self, role: Role) -> None:
        self._num_lives += 1
        worker = KINDS[role.kind](role, f"{role.name}#{self._num_lives}", self.machine)
        self.workers[role.name] = worker
        while worker.take():
            pass
        self._ring()

    def _arrived(self, queue: str) -> None:
        """A message is there: the first worker with room that reads the queue takes it."""
        readers = [w for w in self.workers.values() if queue in w.role.queues and w.has_room()]
        if readers:
            self.faults.rng.choice(readers).take()

    def _kill(self, worker: Worker) -> None:
        self.clock.note("kill", worker)
        worker.die()
        self.store.process_died()
        delay_s = self.faults.rng.uniform(*RESTART_S)
        self.clock.after(delay_s, self._start_worker, worker.role)

    def _disaster(self) -> None:
        if not self.faults.are_on:
            return
        rng = self.faults.rng
        worker = rng.choice([w for w in self.workers.values() if w.is_alive] or [None])
        kind = rng.choices(["kill", "silence", "wipe"], [5, 3, 2])[0]
        if kind == "wipe":
            self.clock.note("wipe")
            self.broker.wipe()
        elif worker and kind == "kill":
            self._kill(worker)
        elif worker:
            self.clock.note("silence", worker)
            worker.fall_silent(rng.uniform(*SILENCE_S))
        self.clock.after(self.faults.pause_s(self.faults.rates.between_disasters_s), self._disaster)

    def _visit(self) -> None:
        if self.faults.are_on:
            self.people.visit()
            self._ring()
            mean_s = self.faults.rates.between_visits_s
            self.clock.after(self.faults.pause_s(mean_s), self._visit)

    # The planner process

    def _ring(self) -> None:
        if not self._is_rung:
            self._is_rung = True
            self.clock.after(PLAN_SOON_S, self._answer)

    def _answer(self) -> None:
        self._is_rung = False
        self._look()

    def _plan_by_the_clock(self) -> None:
        self._look()
        self.clock.after(PLAN_EVERY_S, self._plan_by_the_clock)

    def _look(self) -> None:
        if self._is_planning:
            self._ring()
            return
        views = [worker.view() for worker in self.workers.values()]
        snapshot = take_snapshot(self.clock.now, self.store, self.broker, views)
        commands = self._plan(snapshot)
        self.store.facts.append(Planned(snapshot, tuple(commands)))
        if commands:
            self._is_planning = True
            self.clock.after(self.faults.rng.uniform(*APPLY_S), self._carry_out, commands)

    def _carry_out(self, commands: list[Command]) -> None:
        """One transaction, then the stage calls, unless the planner dies in between."""
        self._is_planning = False
        done = [command for command in commands if self.store.apply(command, self.clock.now)]
        if self.faults.happens(self.faults.rates.planner_death):
            self.clock.note("planner died before its stage calls left")
            return
        for command in done:
            self._send(command)
        if any(not isinstance(command, Explain | SetConcurrency) for command in done):
            self._ring()

    def _send(self, command: Command) -> None:
        if isinstance(command, Prepare):
            if not self.faults.happens(self.faults.rates.lose):
                delay_s = self.faults.rng.uniform(*PREPARE_S)
                self.clock.after(delay_s, self._prepare, command.task)
        elif isinstance(command, DispatchGroup):
            task, step, group = self.store.group(command.group)
            queue = f"rollout.{task.base_model}"
            self.broker.open_attempt(group.id, command.attempt, task.group_size, f"queue:{queue}")
            digest = task.digest_of(step.version)
            self.broker.send(
                queue,
                GroupMessage(task.id, group.id, command.attempt, task.group_size, digest),
            )
        elif isinstance(command, DispatchTraining):
            queue = f"training.{self.store.tasks[command.task].base_model}"
            self.broker.send(queue, PassMessage(command.task, command.step, command.fence))

    def _prepare(self, task_id: str) -> None:
        if self.store.tasks[task_id].poison == "dataset":
            self.store.refuse_preparation(task_id)
        else:
            self.store.make_version_zero(
                task_id, f"{task_id}@0#{self.faults.rng.getrandbits(32):08x}"
            )
        self._ring()
