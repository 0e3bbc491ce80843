"""A cluster in virtual time that runs the shipped planner: what comes of a policy on a workload.

Everything that is not a decision is simulated (engines, tools, trainers, heartbeats, rows), with
the cost models' seconds; every decision is `engine.manager.plan`'s, asked as the planning worker
asks it: when something changed, at most 20 times a virtual second, and each second.
Messages, database and grading take no time here, and nothing fails: `engine.simulation` has the
faults, the emulated benchmark the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from math import inf
from statistics import fmean

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
from .metrics import Span, StepTime, TaskTime
from .rollout import Rollout
from .rows import Group, Step, Task, Tenant
from .timeline import START_S, Timeline
from .training import Training
from .workers import BASE, BEAT_S, environment_view
from .workload import TaskSpec

INTERVAL_S = 0.05  # between two plans
# A finished group alone may wait so long for the next plan: engines hold enough to work on, and
# most of the time that a run takes is spent on plans.
GROUP_LAG_S = 0.5
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
        group_lag_s: float = GROUP_LAG_S,
        interval_s: float = INTERVAL_S,
        planner: Callable[[Snapshot, Policy], list[Command]] = plan,
    ) -> None:
        """group_lag_s: see GROUP_LAG_S. interval_s: between two plans, at least."""
        self.model, self.policy = model, policy
        self.timeline = Timeline()
        self.rollout = Rollout(self.timeline, model, policy.is_multi_lora, self._group_finished)
        self.training = Training(self.timeline, model, policy.steps_per_pass, self._trained)
        self.tenants = {tenant.id: tenant for tenant in tenants}
        for spec in specs:
            self.tenants.setdefault(spec.tenant, Tenant(spec.tenant))
        self.tasks: dict[str, Task] = {}  # submitted and not over
        self.concurrency: dict[str, Concurrency] = {}
        self.step_times: list[StepTime] = []
        self.task_times: list[TaskTime] = []
        self.ledger: list[tuple[float, dict[str, float]]] = []  # device-s by tenant, each beat
        self.num_plans = 0
        self._num_to_come = len(specs)
        self._num_ready = 0
        self._group_lag_s, self._interval_s = group_lag_s, interval_s
        self._planner = planner
        self._planned_at = -inf
        self._plan_due_at = inf
        for spec in specs:
            self.timeline.after(spec.submitted_s, self._submit, spec)
        self._beat()
        self._tick()

    @property
    def now(self) -> float:
        return self.timeline.now

    @property
    def spans(self) -> list[Span]:
        """Periods in which an engine or a trainer was at work."""
        return [span for worker in self.rollout.workers for span in worker.spans] + (
            self.training.spans
        )

    def run(self, until_s: float = inf, until: Callable[[], bool] = lambda: False) -> Cluster:
        """Until every task is over, for so long, or until that is so."""
        while (self.tasks or self._num_to_come) and self.now - START_S < until_s and not until():
            self.timeline.step()
            self.rollout.settle()
        self.rollout.stop()
        return self

    def _submit(self, spec: TaskSpec) -> None:
        self._num_to_come -= 1
        self.tasks[spec.id] = Task(spec, self.now)
        self._ring()

    # The planner

    def _ring(self, within_s: float = 0.0) -> None:
        """Ask for a plan, so soon if the last one is long enough ago."""
        due_at = max(self._planned_at + self._interval_s, self.now + within_s)
        if due_at < self._plan_due_at:
            self._plan_due_at = due_at
            self.timeline.at(due_at, self._plan, due_at)

    def _tick(self) -> None:
        self._ring()
        self.timeline.after(1.0, self._tick)

    def _plan(self, due_at: float) -> None:
        if due_at != self._plan_due_at:
            return  # one that was asked for sooner took its place
        self._plan_due_at, self._planned_at = inf, self.now
        for _ in range(MAX_ROUNDS):
            self.num_plans += 1
            commands = self._planner(self._snapshot(), self.policy)
            for command in commands:
                self._carry_out(command)
            if not any(isinstance(command, BEGETTING) for command in commands):
                break
        self.rollout.feed()
        self.training.begin_passes()
        self._pause_engines()

    def _snapshot(self) -> Snapshot:
        return Snapshot(
            now=self.now,
            tenants=tuple(TenantView(**vars(tenant)) for tenant in self.tenants.values()),
            tasks=tuple(task.view(BASE) for task in self.tasks.values()),
            workers=self._worker_views,
            queues={**self.rollout.queues(), f"training.{BASE}": len(self.training.queue)},
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
            case Explain(task=name, phase=phase, reason=reason, queue_position=place):
                self._change(name, phase=phase, reason=reason, queue_position=place)
            case OpenStep():
                self._open(command)
            case DispatchGroup():
                self._dispatch_group(command)
            case DispatchTraining():
                self._dispatch_training(command)
            case End():
                self._end(command)

    def _change(self, name: str, **values: object) -> None:
        task = self.tasks[name]
        for field, value in values.items():
            setattr(task, field, value)
        task.touch()

    def _step(self, command: DispatchGroup | DispatchTraining) -> Step:
        """Raises RuntimeError for work that is sent again: nothing is ever lost here."""
        if command.cause:
            raise RuntimeError(f"sent again: {command}")
        steps = self.tasks[command.task].steps
        return next(step for step in steps if step.number == command.step)

    def _open(self, command: OpenStep) -> None:
        task = self.tasks[command.task]
        step = Step(task, command.number, command.version, self.now)
        for index in range(task.spec.batch_size):
            name = f"{command.task}/{command.number}/{index}"
            step.unfinished[name] = Group(step, index, name)
        task.steps.append(step)
        step.touch()

    def _dispatch_group(self, command: DispatchGroup) -> None:
        step = self._step(command)
        group = step.unfinished[command.group]
        group.state, group.attempt, group.dispatched_at = "dispatched", command.attempt, self.now
        tenant = self.tenants[step.task.spec.tenant]
        tenant.virtual_time, tenant.last_start = command.virtual_time, command.last_start
        step.task.virtual_time = command.task_virtual_time
        step.task.last_start = command.task_last_start
        step.charged_s += command.settled_s
        step.begun_at = step.begun_at or self.now
        self.rollout.send(group)

    def _dispatch_training(self, command: DispatchTraining) -> None:
        step = self._step(command)
        step.state, step.fence, step.dispatched_at = "training", command.fence, self.now
        step.touch()
        self.training.queue.append(step)

    def _end(self, command: End) -> None:
        if command.state != "succeeded":
            raise RuntimeError(f"nothing ever fails here: {command}")
        task = self.tasks.pop(command.task)
        spec = task.spec
        found = TaskTime(spec.id, spec.tenant, spec.kind.name, task.submitted_at, self.now)
        self.task_times.append(found)

    # What the stages tell

    def _group_finished(self, group: Group, device_s: float) -> None:
        step, task = group.step, group.step.task
        del step.unfinished[group.id]
        step.tokens += group.tokens
        task.group_tokens.add(task.spec.kind.prompt_tokens + group.tokens)
        step.device_s += device_s
        if not step.unfinished:
            self._num_ready += 1
            step.state, step.ready_at, step.ready_order = "ready", self.now, self._num_ready
            task.rollout_s.add(self.now - step.begun_at)
            task.group_s.add(step.device_s / task.spec.batch_size)
            self._settle(step, task.pass_s.value or self._mean_pass_s())
        step.touch()
        self._ring(self._group_lag_s if step.unfinished else 0.0)

    def _trained(self, step: Step, device_s: float) -> None:
        task = step.task
        step.state = "committed"
        task.steps.remove(step)
        task.version += 1
        task.pass_s.add(device_s)
        self._settle(step, device_s)
        task.touch()
        self.step_times.append(step.times(self.now))
        self._pause_engines()
        self._ring()

    def _settle(self, step: Step, pass_s: float) -> None:
        """Correct what was charged for the step; pass_s: of its training, as far as known."""
        tenant, real_s = self.tenants[step.task.spec.tenant], step.device_s + pass_s
        owed_s, step.charged_s = real_s - step.charged_s, real_s
        tenant.virtual_time += owed_s / tenant.weight
        step.task.virtual_time += owed_s

    def _mean_pass_s(self) -> float:
        """Of the tasks whose passes are known; 0 if nobody's are."""
        known = [task.pass_s.value for task in self.tasks.values() if task.pass_s.value]
        return fmean(known) if known else 0.0

    def _pause_engines(self) -> None:
        """Where rollout does not overlap training, engines stand still during a pass."""
        if not self.policy.overlaps_training:
            self.rollout.pause(self.training.is_busy)

    def _beat(self) -> None:
        workers = [worker.tell(self.now) for worker in self.rollout.workers]
        workers += [trainer.view(self.now) for trainer in self.training.trainers]
        self._worker_views = (*workers, environment_view(START_S, self.now))
        self.ledger.append((self.now, self._device_s()))
        self.timeline.after(BEAT_S, self._beat)

    def _device_s(self) -> dict[str, float]:
        """What each tenant has had so far, of rollout and training."""
        total = dict.fromkeys(self.tenants, 0.0)
        parts = [worker.engine.owner_s for worker in self.rollout.workers]
        parts += [trainer.owed_s(self.now) for trainer in self.training.trainers]
        for tenant, seconds in (pair for part in parts for pair in part.items()):
            total[tenant] += seconds
        return total
