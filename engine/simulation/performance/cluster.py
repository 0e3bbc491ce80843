"""A cluster in virtual time that runs the shipped planner: what comes of a policy on a workload.

Everything that is not a decision is simulated (engines, tools, trainers, heartbeats, rows), with
the cost models' seconds; every decision is `engine.manager.plan`'s, asked as the planning worker
asks it: when something changed, at most `plans_per_s` times a virtual second, and each second.
Messages, database and grading take no time here, and nothing fails: `engine.simulation` has the
faults, the emulated benchmark the rest.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from math import inf

from engine.manager import plan
from engine.manager.policy import Policy
from engine.manager.snapshot import (
    Admit,
    Command,
    Concurrency,
    DispatchGroup,
    DispatchTraining,
    End,
    Explain,
    OpenStep,
    Prepare,
    SetConcurrency,
    Snapshot,
    TenantView,
)

from .cost_models import CostModel
from .lockstep import Sequence as Turn
from .metrics import Span, StepTime, TaskTime
from .rows import Flight, Group, Step, Task, Tenant
from .timeline import START_S, Timeline
from .workers import (
    BASE,
    BEAT_S,
    ENVIRONMENT,
    SHARED_QUEUE,
    RolloutWorker,
    Trainer,
    environment_view,
)
from .workload import TaskSpec

PLANS_PER_S = 20.0
MAX_ROUNDS = 10  # a plan's own consequences are planned at once
BEGETTING = (Admit, Prepare, OpenStep, End)  # commands that ask for another plan


class Cluster:
    """One run. `run` it once, then read what is in it."""

    def __init__(
        self,
        specs: Sequence[TaskSpec],
        model: CostModel,
        policy: Policy,
        tenants: Iterable[Tenant] = (),
        plans_per_s: float = PLANS_PER_S,
    ) -> None:
        self.model, self.policy = model, policy
        self.timeline = Timeline()
        now = self.timeline.now
        self.engines = [
            RolloutWorker(number, model.engine, now, policy.is_multi_lora)
            for number in range(1, model.num_engines + 1)
        ]
        self.trainers = [
            Trainer(f"training-{n:02d}", now) for n in range(1, model.num_trainers + 1)
        ]
        self.tenants = {tenant.id: tenant for tenant in tenants}
        for spec in specs:
            self.tenants.setdefault(spec.tenant, Tenant(spec.tenant))
        self.tasks: dict[str, Task] = {}  # submitted and not over
        self.concurrency: dict[str, Concurrency] = {}
        self.step_times: list[StepTime] = []
        self.task_times: list[TaskTime] = []
        self.ledger: list[
            tuple[float, dict[str, float]]
        ] = []  # device-seconds by tenant, each beat
        self.num_plans = 0
        self._shared: deque[Flight] = deque()
        self._training_queue: deque[Step] = deque()
        self._training_spans: list[Span] = []
        self._changed_engines: set[RolloutWorker] = set()
        self._num_to_come = len(specs)
        self._num_ready = 0
        self._interval_s = 1 / plans_per_s
        self._planned_at = -inf
        self._is_plan_due = False
        for spec in specs:
            self.timeline.after(spec.submitted_s, self._submit, spec)
        self._tick()
        self._beat()

    @property
    def now(self) -> float:
        return self.timeline.now

    @property
    def spans(self) -> list[Span]:
        """Periods in which an engine or a trainer was at work."""
        return [span for worker in self.engines for span in worker.spans] + self._training_spans

    def run(self, until_s: float = inf) -> Cluster:
        """Until every task is over, or for so long."""
        while (self.tasks or self._num_to_come) and self.now - START_S < until_s:
            self.timeline.step()
            for worker in self._changed_engines:
                self._await_event(worker)
            self._changed_engines.clear()
        for worker in self.engines:
            worker.engine.advance(self.now)
            worker.end_period()
        return self

    def _submit(self, spec: TaskSpec) -> None:
        self._num_to_come -= 1
        self.tasks[spec.id] = Task(spec, self.now)
        self._ring()

    # The planner

    def _ring(self) -> None:
        if not self._is_plan_due:
            self._is_plan_due = True
            self.timeline.at(self._planned_at + self._interval_s, self._plan)

    def _tick(self) -> None:
        self._ring()
        self.timeline.after(1.0, self._tick)

    def _plan(self) -> None:
        self._is_plan_due, self._planned_at = False, self.now
        for _ in range(MAX_ROUNDS):
            self.num_plans += 1
            commands = plan(self._snapshot(), self.policy)
            for command in commands:
                self._carry_out(command)
            if not any(isinstance(command, BEGETTING) for command in commands):
                break
        self._feed_engines()
        self._begin_passes()

    def _snapshot(self) -> Snapshot:
        queues = {SHARED_QUEUE: len(self._shared), f"training.{BASE}": len(self._training_queue)}
        queues.update((worker.queue, len(worker.own)) for worker in self.engines)
        return Snapshot(
            now=self.now,
            tenants=tuple(TenantView(**vars(tenant)) for tenant in self.tenants.values()),
            tasks=tuple(task.view(BASE) for task in self.tasks.values()),
            workers=self._worker_views,
            queues=queues,
            concurrency=tuple(self.concurrency.values()),
        )

    def _carry_out(self, command: Command) -> None:
        match command:
            case SetConcurrency(concurrency=found):
                self.concurrency[found.base_model] = found
            case Admit(task=name):
                self._change(name, state="running")
            case Prepare(task=name):
                self._change(name, prepare_sent_at=self.now, version=0)
            case Explain(task=name):
                explained = {
                    "phase": command.phase,
                    "reason": command.reason,
                    "queue_position": command.queue_position,
                }
                self._change(name, **explained)
            case OpenStep(task=name):
                self._open(self.tasks[name], command.number, command.version)
            case DispatchGroup():
                self._dispatch(command)
            case DispatchTraining():
                step = self._step(command.task, command.step)
                step.state, step.fence, step.dispatched_at = "training", command.fence, self.now
                step.touch()
                self._training_queue.append(step)
            case End(task=name):
                self._end(self.tasks.pop(name), command)

    def _change(self, name: str, **values: object) -> None:
        task = self.tasks[name]
        for field, value in values.items():
            setattr(task, field, value)
        task.touch()

    def _step(self, task: str, number: int) -> Step:
        return next(step for step in self.tasks[task].steps if step.number == number)

    def _open(self, task: Task, number: int, version: int) -> None:
        step = Step(task, number, version, self.now)
        step.groups = [Group(step, index) for index in range(task.spec.batch_size)]
        step.num_unfinished = len(step.groups)
        task.steps.append(step)
        step.touch()

    def _dispatch(self, command: DispatchGroup) -> None:
        step = self._step(command.task, command.step)
        group = step.groups[int(command.group.rpartition("/")[2])]
        task, tenant = step.task, self.tenants[step.task.spec.tenant]
        if command.cause or group.state != "waiting":
            raise RuntimeError(f"nothing is ever lost here, but {command} says so")
        group.state, group.attempt, group.dispatched_at = "dispatched", command.attempt, self.now
        tenant.virtual_time, task.virtual_time = command.virtual_time, command.task_virtual_time
        step.begun_at = step.begun_at or self.now
        group.flights = [Flight(group, one) for one in task.spec.group(step.number, group.index)]
        for flight in group.flights:
            flight.move(f"queue:{SHARED_QUEUE}", self.now)
        self._shared.extend(group.flights)

    def _end(self, task: Task, command: End) -> None:
        if command.state != "succeeded":
            raise RuntimeError(f"nothing ever fails here, but {command} says so")
        spec = task.spec
        found = TaskTime(spec.id, spec.tenant, spec.kind.name, task.submitted_at, self.now)
        self.task_times.append(found)

    # Rollout and environment

    def _feed_engines(self) -> None:
        """Each engine takes later turns from its own queue; the emptiest ones take new ones."""
        for worker in self.engines:
            while worker.own and worker.has_room:
                self._generate(worker, worker.own.popleft())
        while self._shared:
            worker = min(self.engines, key=lambda one: one.engine.num_held)
            if not worker.has_room:
                break
            self._generate(worker, self._shared.popleft())

    def _generate(self, worker: RolloutWorker, flight: Flight) -> None:
        flight.move(f"worker:{worker.name}", self.now)
        spec = flight.group.step.task.spec
        context, is_first = flight.context, flight.turn == 0
        unread = spec.kind.prompt_tokens / spec.group_size if is_first else spec.kind.tool_tokens
        if self.model.engine.kv_tokens and not is_first:
            unread = context  # somebody else needed the room meanwhile
        turn = Turn(
            label=flight,
            tokens=flight.episode.tokens[flight.turn],
            adapter=spec.id,
            owner=spec.tenant,
            context=context,
            unread=unread,
        )
        worker.engine.advance(self.now)
        worker.engine.add(turn)
        self._changed_engines.add(worker)

    def _await_event(self, worker: RolloutWorker) -> None:
        worker.engine.advance(self.now)
        worker.note_work()
        worker.generation += 1
        when = worker.engine.next_event_at()
        if when < inf:
            self.timeline.at(when, self._engine_event, worker, worker.generation)

    def _engine_event(self, worker: RolloutWorker, generation: int) -> None:
        if generation != worker.generation:
            return  # something changed since, and another event is awaited
        worker.engine.advance(self.now)
        for turn in worker.engine.settle():
            self._turn_ended(worker, turn.label)
        self._changed_engines.add(worker)
        self._feed_engines()

    def _turn_ended(self, worker: RolloutWorker, flight: Flight) -> None:
        flight.turn += 1
        if flight.turn < len(flight.episode.tokens):
            flight.move(f"worker:{ENVIRONMENT}", self.now)
            tool_s = flight.episode.tools_s[flight.turn - 1]
            self.timeline.after(tool_s, self._tool_answered, worker, flight)
            return
        group = flight.group
        group.flights.remove(flight)
        group.tokens += flight.episode.num_tokens
        if not group.flights:
            self._group_finished(worker, group)
        group.touch()

    def _tool_answered(self, worker: RolloutWorker, flight: Flight) -> None:
        flight.move(f"queue:{worker.queue}", self.now)
        worker.own.append(flight)
        self._feed_engines()

    def _group_finished(self, worker: RolloutWorker, group: Group) -> None:
        step, spec = group.step, group.step.task.spec
        group.state = "finished"
        step.tokens += group.tokens
        step.task.group_tokens.add(spec.kind.prompt_tokens + group.tokens)
        step.task.group_s.add(group.tokens * worker.s_per_token)
        step.num_unfinished -= 1
        if not step.num_unfinished:
            self._num_ready += 1
            step.state, step.ready_at, step.ready_order = "ready", self.now, self._num_ready
            step.task.rollout_s.add(self.now - step.begun_at)
        self._ring()

    # Training

    def _begin_passes(self) -> None:
        for trainer in self.trainers:
            if trainer.steps or not self._training_queue:
                continue
            size = min(self.policy.steps_per_pass, len(self._training_queue))
            trainer.steps = [self._training_queue.popleft() for _ in range(size)]
            trainer.began_at = self.now
            trainer.pass_s = self.model.together_s([self._pass_s(s) for s in trainer.steps])
            for step in trainer.steps:
                step.holder, step.trained_at = trainer.name, self.now
                step.touch()
            self.timeline.after(trainer.pass_s, self._pass_ended, trainer)
        self._pause_engines()

    def _pass_s(self, step: Step) -> float:
        return self.model.pass_s[step.task.spec.kind.name]

    def _pass_ended(self, trainer: Trainer) -> None:
        for tenant, share in trainer.shares().items():
            trainer.owner_s[tenant] = trainer.owner_s.get(tenant, 0.0) + share
        for step in trainer.steps:
            span = Span(step.task.spec.id, "training", trainer.name, trainer.began_at, self.now)
            self._training_spans.append(span)
            self._commit(step, trainer.pass_s / len(trainer.steps))
        trainer.steps = []
        self._pause_engines()
        self._ring()

    def _commit(self, step: Step, pass_s: float) -> None:
        task = step.task
        step.state = "committed"
        task.steps.remove(step)
        task.version += 1
        task.pass_s.add(pass_s)
        task.touch()
        self.step_times.append(
            StepTime(
                task=task.spec.id,
                number=step.number,
                opened_at=step.opened_at,
                begun_at=step.begun_at,
                ready_at=step.ready_at,
                trained_at=step.trained_at,
                committed_at=self.now,
                tokens=step.tokens,
                version=step.version,
            )
        )

    def _pause_engines(self) -> None:
        """Where rollout does not overlap training, engines stand still during a pass."""
        if self.policy.overlaps_training:
            return
        is_training = any(trainer.steps for trainer in self.trainers)
        for worker in self.engines:
            if worker.engine.is_paused != is_training:
                worker.engine.advance(self.now)
                worker.engine.is_paused = is_training
                self._changed_engines.add(worker)

    # Heartbeats

    def _beat(self) -> None:
        workers = [worker.tell(self.now) for worker in self.engines]
        workers += [trainer.view(self.now) for trainer in self.trainers]
        self._worker_views = (*workers, environment_view(START_S, self.now))
        self.ledger.append((self.now, self._device_s()))
        self.timeline.after(BEAT_S, self._beat)

    def _device_s(self) -> dict[str, float]:
        total = dict.fromkeys(self.tenants, 0.0)
        for found in [worker.engine.owner_s for worker in self.engines] + [
            trainer.owed_s(self.now) for trainer in self.trainers
        ]:
            for tenant, seconds in found.items():
                total[tenant] += seconds
        return total
