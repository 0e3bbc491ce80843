"""The simulated database: each change is a conditional update, as jobs/services makes it.

It survives every kill and every loss of Redis; a transaction that meets a conflict never gets here.
Methods answer whether a row changed; a change that the checkers care about is added to `facts`.
Guards stand in methods of their own (`is_whole`, `is_on_policy`, `is_live_attempt`, `holds_fence`),
so that tests can plant a bug in just one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from statistics import fmean

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
    TaskView,
)

from .facts import (
    Committed,
    Fact,
    GroupDispatched,
    GroupFinished,
    PassTaken,
    Sample,
    Settled,
    StepOpened,
    TaskEnded,
)
from .rows import GroupRow, StepRow, TaskRow, TenantRow

SMOOTHING = 0.2  # weight of the newest sight in a task's learned costs
NOBODY = "nobody"  # holder of a pass that was given up
REPORTED_ERROR = "the {part} of {task} failed"  # names its owner, so that checker 5 can tell


class Store:
    """All rows, and the only code that changes them."""

    def __init__(self) -> None:
        self.tenants: dict[str, TenantRow] = {}
        self.tasks: dict[str, TaskRow] = {}
        self.concurrency: dict[str, Concurrency] = {}  # by base model
        self.facts: list[Fact] = []  # since the runner took them last
        self.touched: set[str] = set()  # tasks that changed since then
        self.views: dict[str, TaskView] = {}  # of tasks that did not change since they were made
        self.num_late = 0  # results of earlier attempts, dropped
        self.num_refused = 0  # trajectories of another adapter than their version's
        self._groups: dict[str, tuple[TaskRow, StepRow, GroupRow]] = {}
        self._last_ready_order = 0

    def touch(self, task_id: str) -> None:
        """Say that a row of the task changes."""
        self.touched.add(task_id)
        self.views.pop(task_id, None)

    def forget_view(self, group_id: str) -> None:
        """Say that something about the group changed that is in no row."""
        self.views.pop(self._groups[group_id][0].id, None)

    # The planner's commands

    def apply(self, command: Command, now: float) -> bool:
        """Carry out one command; False if what it was decided on is no longer so."""
        if isinstance(command, SetConcurrency):
            self.concurrency[command.concurrency.base_model] = command.concurrency
            return True
        task = self.tasks[command.task]
        if task.is_over:
            return False
        self.touch(task.id)
        appliers: dict[type, Callable[..., bool]] = {
            Admit: self._admit,
            Prepare: self._prepare,
            OpenStep: self._open_step,
            DispatchGroup: self._dispatch_group,
            DispatchTraining: self._dispatch_training,
            End: self._end,
            Explain: self._explain,
        }
        return appliers[type(command)](task, command, now)

    def _admit(self, task: TaskRow, command: Admit, now: float) -> bool:
        return self.move_task(task.id, "running", ["queued"])

    def _prepare(self, task: TaskRow, command: Prepare, now: float) -> bool:
        task.prepare_sent_at = now
        return True

    def _open_step(self, task: TaskRow, command: OpenStep, now: float) -> bool:
        """Guarded by what the database can guard: (task, number) is unique."""
        if task.state != "running" or any(s.number == command.number for s in task.steps):
            return False
        groups = [GroupRow(f"{task.id}.{command.number}.{i}", i) for i in range(task.batch_size)]
        step = StepRow(command.number, groups, command.version, opened_at=now)
        task.steps.append(step)
        self._groups.update({group.id: (task, step, group) for group in groups})
        self.facts.append(StepOpened(task.id, step.number, step.version))
        return True

    def _dispatch_group(self, task: TaskRow, command: DispatchGroup, now: float) -> bool:
        _, step, group = self._groups[command.group]
        if group.attempt != command.attempt - 1 or group.state == "finished":
            return False
        group.state, group.attempt, group.dispatched_at = "dispatched", command.attempt, now
        tenant = self.tenants[task.tenant]
        tenant.virtual_time, tenant.last_start = command.virtual_time, command.last_start
        task.virtual_time, task.last_start = command.task_virtual_time, command.task_last_start
        step.charged_s += command.settled_s
        self.facts.append(GroupDispatched(task.id, group.id, group.attempt))
        return True

    def _dispatch_training(self, task: TaskRow, command: DispatchTraining, now: float) -> bool:
        step = self._step(task.id, command.step)
        if step.fence != command.fence - 1 or step.state not in ("ready", "training"):
            return False
        step.state, step.fence, step.holder = "training", command.fence, ""
        step.dispatched_at = now
        return True

    def _end(self, task: TaskRow, command: End, now: float) -> bool:
        return self.move_task(task.id, command.state, ["running"], command.reason)

    def _explain(self, task: TaskRow, command: Explain, now: float) -> bool:
        task.phase, task.reason = command.phase, command.reason
        task.queue_position = command.queue_position
        return True

    # People

    def submit(self, task: TaskRow) -> None:
        self.tasks[task.id] = task

    def move_task(
        self, task_id: str, state: str, from_states: Iterable[str], why: str = ""
    ) -> bool:
        task = self.tasks[task_id]
        if task.state not in from_states:
            return False
        task.state = state
        self.touch(task_id)
        if task.is_over:
            self.facts.append(TaskEnded(task_id, state, why))
        return True

    # Stages

    def make_version_zero(self, task_id: str, digest: str) -> bool:
        task = self.tasks[task_id]
        if task.is_over or task.versions:
            return False
        self.touch(task_id)
        task.versions.append((0, digest))
        self.facts.append(Committed(task_id, 0, digest, ()))
        return True

    def refuse_preparation(self, task_id: str) -> None:
        self.touch(task_id)
        self.tasks[task_id].prepare_error = REPORTED_ERROR.format(part="dataset", task=task_id)

    def group(self, group_id: str) -> tuple[TaskRow, StepRow, GroupRow]:
        return self._groups[group_id]

    def is_live_attempt(self, group_id: str, attempt: int) -> bool:
        """Whether a result of this attempt is still wanted."""
        task, _, group = self._groups[group_id]
        return not task.is_over and (group.state, group.attempt) == ("dispatched", attempt)

    def is_on_policy(self, group_id: str, samples: tuple[Sample, ...]) -> bool:
        """Whether the step's version generated all of them."""
        task, step, _ = self._groups[group_id]
        wanted = task.digest_of(step.version)
        return all(digest == wanted for sample in samples for digest in sample.digests)

    def is_whole(self, step: StepRow) -> bool:
        """Whether nothing of the step is still to come."""
        return all(group.state == "finished" for group in step.groups)

    def finish_group(
        self, group_id: str, attempt: int, samples: tuple[Sample, ...], now: float
    ) -> bool:
        """dispatched → finished; the last group of the step makes it ready."""
        if not self.is_live_attempt(group_id, attempt):
            self.num_late += 1
            return False
        if not self.is_on_policy(group_id, samples):
            self.num_refused += len(samples)
            return self.return_group(group_id, attempt, "generated by another adapter")
        task, step, group = self._groups[group_id]
        self.touch(task.id)
        group.state, group.samples = "finished", samples
        task.group_s = _learned(task.group_s, sum(sample.busy_s for sample in samples))
        self.tenants[task.tenant].tokens_today += task.group_cost
        self.facts.append(GroupFinished(task.id, step.number, group_id, samples))
        if step.state == "open" and self.is_whole(step):
            self._last_ready_order += 1
            step.state, step.ready_order = "ready", self._last_ready_order
            task.rollout_s = _learned(task.rollout_s, now - step.opened_at)
            self._settle(task, step, task.pass_s or self._mean_pass_s(task.base_model))
        return True

    def return_group(self, group_id: str, attempt: int, error: str) -> bool:
        """dispatched → waiting, with an error more."""
        task, _, group = self._groups[group_id]
        if (group.state, group.attempt) != ("dispatched", attempt):
            return False
        self.touch(task.id)
        group.state, group.last_error = "waiting", error
        group.errors += 1
        return True

    def take_pass(self, task_id: str, number: int, fence: int, holder: str) -> bool:
        step = self._step(task_id, number)
        is_wanted = (step.state, step.fence, step.holder) == ("training", fence, "")
        if self.tasks[task_id].state != "running" or not is_wanted:
            return False
        self.touch(task_id)
        step.holder = holder
        self.facts.append(PassTaken(task_id, number, step.ready_order))
        return True

    def disown(self, holder: str, held: set[tuple[str, int]]) -> None:
        """Give up the passes that the rows say `holder` has, but for those it works on."""
        for task in self.tasks.values():
            for step in task.live_steps:
                if step.holder == holder and (task.id, step.number) not in held:
                    self.touch(task.id)
                    step.holder = NOBODY

    def batch(self, task_id: str, number: int) -> tuple[tuple[Sample, ...], ...]:
        """The payloads of the step's finished groups."""
        groups = self._step(task_id, number).groups
        return tuple(group.samples for group in groups if group.state == "finished")

    def holds_fence(self, step: StepRow, fence: int, holder: str) -> bool:
        """Whether this pass is still the one that may commit."""
        return (step.state, step.fence, step.holder) == ("training", fence, holder)

    def commit_version(
        self,
        task_id: str,
        number: int,
        fence: int,
        holder: str,
        digest: str,
        batch: tuple[tuple[Sample, ...], ...],
        pass_s: float,
    ) -> bool:
        """training → committed, and version `number` + 1 with it."""
        task, step = self.tasks[task_id], self._step(task_id, number)
        if task.is_over or not self.holds_fence(step, fence, holder):
            return False
        self.touch(task_id)
        step.state = "committed"
        task.pass_s = _learned(task.pass_s, pass_s)
        self._settle(task, step, max(0.0, pass_s))
        task.versions.append((number + 1, digest))
        self.facts.append(Committed(task_id, number + 1, digest, batch))
        return True

    def fail_pass(self, task_id: str, number: int, fence: int, holder: str, error: str) -> bool:
        """training → ready at its old place in the FIFO, with an error more."""
        step = self._step(task_id, number)
        if not self.holds_fence(step, fence, holder):
            return False
        self.touch(task_id)
        step.state, step.holder, step.last_error = "ready", "", error
        step.errors += 1
        return True

    def process_died(self) -> None:
        """A process was killed. What is committed stays, so there is nothing to do."""

    def _settle(self, task: TaskRow, step: StepRow, pass_s: float) -> None:
        """Correct what was charged for the step; pass_s: of its training, as far as known."""
        real_s = step.rollout_s + pass_s
        owed_s, step.charged_s = real_s - step.charged_s, real_s
        task.virtual_time += owed_s
        tenant = self.tenants[task.tenant]
        tenant.virtual_time += owed_s / tenant.weight
        self.facts.append(Settled(task.id, owed_s))

    def _mean_pass_s(self, base_model: str) -> float:
        """Of the base model's tasks whose passes are known; 0 if nobody's are."""
        active = (task for task in self.tasks.values() if not task.is_over)
        known = [task.pass_s for task in active if task.pass_s and task.base_model == base_model]
        return fmean(known) if known else 0.0

    def _step(self, task_id: str, number: int) -> StepRow:
        return next(step for step in self.tasks[task_id].steps if step.number == number)


def _learned(mean: float, seen: float) -> float:
    """The running mean with one sight more. A clock set back shows times that cannot be."""
    if seen <= 0:
        return mean
    return mean + SMOOTHING * (seen - mean) if mean else seen
