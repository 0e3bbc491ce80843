"""The simulated cluster: a database, a Redis, workers, a planner process and the people who use it.

Everything happens as events of one clock and by the dice of one seed, so a seed is a run. The
planner process takes a snapshot, and carries its commands out a little later, when some of what it
decided on has changed.
"""

from __future__ import annotations

from collections.abc import Callable

from engine.manager.leases import BEAT_LIMIT_S
from engine.manager.policy import Policy
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
from .disasters import Disasters
from .facts import Planned
from .faults import Faults
from .people import People
from .scenario import Scenario
from .snapshots import take_snapshot
from .stages import KINDS
from .store import Store
from .workers import Machine, Role, Worker

Plan = Callable[[Snapshot, Policy], list[Command]]

PLAN_EVERY_S = 1.0  # whatever happens
PLAN_SOON_S = 0.05  # after something changed: 20 plans a second at most
APPLY_S = (0.0, 0.03)  # from a snapshot to the transaction that carries out the plan
PREPARE_S = (0.1, 1.0)


class Cluster:
    """All parts, wired. `start` schedules the first events; the runner steps the clock."""

    def __init__(self, seed: int, scenario: Scenario, plan: Plan, store: Store) -> None:
        self.scenario = scenario
        self.clock = Clock()
        self.faults = Faults(seed, scenario.rates)
        self.store = store
        self.broker = Broker(
            self.clock, self.faults.fate, self.faults.place, self._arrived, store.forget_view
        )
        self.machine = Machine(
            self.clock, store, self.broker, self.faults, self.ring, self._is_living
        )
        self.workers: dict[str, Worker] = {}  # by name: the present life, dead or alive
        self.planner_skew_s = 0.0  # what the planner's clock shows more than the others'
        self.is_healed = False
        self.people = People(self.machine, scenario)
        self._disasters = Disasters(self)
        self._readers: dict[str, list[str]] = {}  # names of workers by queue
        for role in scenario.roles:
            for queue in role.queues:
                self._readers.setdefault(queue, []).append(role.name)
        self._plan = plan
        self._num_lives = 0
        self._is_rung = self._is_planning = False

    def start(self) -> None:
        for role in self.scenario.roles:
            self.start_worker(role)
        self.people.found()
        self.clock.after(0.0, self._plan_by_the_clock)
        self._disasters.schedule()

    def heal(self) -> None:
        """From now on nothing fails, nobody interferes, and every task may run to its end."""
        self.is_healed = True
        self.faults.stop()
        self.planner_skew_s = 0.0
        self.people.leave()
        self.clock.note("heal")
        self.ring()

    # Workers

    def start_worker(self, role: Role) -> None:
        self._num_lives += 1
        worker = KINDS[role.kind](role, f"{role.name}#{self._num_lives}", self.machine)
        self.workers[role.name] = worker
        while worker.take():
            pass
        self.ring()

    def _is_living(self, name: str) -> bool:
        return abs(self.clock.wall - self.workers[name].beat()) <= BEAT_LIMIT_S

    def _arrived(self, queue: str) -> None:
        """A message is there: a worker with room that reads the queue takes it."""
        workers = [self.workers[name] for name in self._readers.get(queue, ())]
        readers = [worker for worker in workers if worker.has_room()]
        if readers:
            self.faults.rng.choice(readers).take()

    # The planner process

    def ring(self) -> None:
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
            self.ring()
            return
        views = [worker.view() for worker in self.workers.values()]
        snapshot = take_snapshot(self._planner_time(), self.store, self.broker, views)
        commands = self._plan(snapshot, self.scenario.policy)
        self.store.facts.append(Planned(snapshot, tuple(commands)))
        if commands:
            self._is_planning = True
            self.clock.after(self.faults.rng.uniform(*APPLY_S), self._carry_out, commands)

    def _planner_time(self) -> float:
        return self.clock.wall + self.planner_skew_s

    def _carry_out(self, commands: list[Command]) -> None:
        """One transaction, then the stage calls, unless the planner dies in between."""
        self._is_planning = False
        if self.faults.happens(self.faults.rates.conflict):
            self.clock.note("conflict: nothing of this plan is carried out")
            self.ring()
            return
        now = self._planner_time()
        done = [command for command in commands if self.store.apply(command, now)]
        if self.faults.happens(self.faults.rates.planner):
            self.clock.note("planner died before its stage calls left")
            return
        for command in done:
            self._send(command)
        if any(not isinstance(command, Explain | SetConcurrency) for command in done):
            self.ring()

    def _send(self, command: Command) -> None:
        if isinstance(command, Prepare):
            if not self.faults.happens(self.faults.rates.lose):
                delay_s = self.faults.rng.uniform(*PREPARE_S)
                self.clock.after(delay_s, self._prepare, command.task)
        elif isinstance(command, DispatchGroup):
            self._send_group(command)
        elif isinstance(command, DispatchTraining):
            queue = f"training.{self.store.tasks[command.task].base_model}"
            self.broker.send(queue, PassMessage(command.task, command.step, command.fence))

    def _send_group(self, command: DispatchGroup) -> None:
        task, step, group = self.store.group(command.group)
        queue = f"rollout.{task.base_model}"
        self.broker.open_attempt(group.id, command.attempt, task.group_size, f"queue:{queue}")
        digest = task.digest_of(step.version)
        self.broker.send(
            queue, GroupMessage(task.id, group.id, command.attempt, task.group_size, digest)
        )

    def _prepare(self, task_id: str) -> None:
        if self.store.tasks[task_id].poison == "dataset":
            self.store.refuse_preparation(task_id)
        else:
            digest = f"{task_id}@0#{self.faults.rng.getrandbits(32):08x}"
            self.store.make_version_zero(task_id, digest)
        self.ring()
