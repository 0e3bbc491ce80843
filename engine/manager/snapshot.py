"""What the planner sees and what it answers with. Times are epoch seconds.

Costs are device-seconds: what a stage of a worker is busy for, were it busy with that alone.

A snapshot is a complete, consistent picture of every task that is not in a terminal state, plus
what Redis and the workers' heartbeats say about what is in flight. Commands are decisions; `jobs`
persists each by a conditional update and sends the stage call on commit.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property


@dataclass(frozen=True)
class TenantView:
    id: str
    weight: float = 1.0  # > 0; share of device-seconds among tenants that have work
    virtual_time: float = 0.0  # device-seconds so far / weight (start-time fair queueing)
    last_start: float = 0.0  # what it was when the tenant was last served as the one furthest back
    max_concurrent_tasks: int = 0  # tasks in state running or paused; 0: no limit
    tokens_per_day: int = 0  # 0: no limit
    tokens_today: int = 0
    is_full: bool = False  # it stores as much as it may
    is_suspended: bool = False


@dataclass(frozen=True, slots=True)
class Whereabouts:
    """Where the unfinished trajectories of a dispatched group are, as its Redis hash says."""

    place: str  # "queue:<name>", "worker:<incarnation>"
    since: float  # the latest of them came there
    count: int  # trajectories


@dataclass(frozen=True, slots=True)
class GroupView:
    id: str
    index: int  # 0 … batch_size - 1
    state: str  # "waiting" | "dispatched"
    attempt: int = 0  # 0: never dispatched
    errors: int = 0  # attempts that ended in an engine error (not those that were lost)
    last_error: str = ""
    dispatched_at: float = 0.0
    whereabouts: tuple[
        Whereabouts, ...
    ] = ()  # of a dispatched group; empty: Redis knows nothing of it


@dataclass(slots=True)
class Presence:
    """The unfinished trajectories of a whole step that are at one place; counted up by _Tally.of,
    and left alone afterwards."""

    place: str
    count: int
    earliest: float  # when the first of them came there
    latest: float  # and the last


@dataclass(slots=True)
class _Tally:
    """What a step's groups come to."""

    waiting: tuple[GroupView, ...]
    dispatched: tuple[GroupView, ...]
    unseen: tuple[GroupView, ...]
    presences: tuple[Presence, ...]
    worst: tuple[GroupView, ...]

    @classmethod
    def of(cls, groups: tuple[GroupView, ...]) -> _Tally:
        """In one look at each: a plan sees tens of thousands of them, mostly for the first time in
        a while, so that to fetch one takes longer than all that is asked of it."""
        waiting: list[GroupView] = []
        dispatched: list[GroupView] = []
        unseen: list[GroupView] = []
        presences: dict[str, Presence] = {}  # by place
        worst = groups[:1] * 2
        errors, attempt = (worst[0].errors, worst[0].attempt) if worst else (0, 0)
        for group in groups:
            if group.errors > errors:
                worst, errors = (group, worst[1]), group.errors
            if group.attempt > attempt:
                worst, attempt = (worst[0], group), group.attempt
            if group.state == "waiting":
                waiting.append(group)
                continue
            dispatched.append(group)
            if not group.whereabouts:
                unseen.append(group)
            for where in group.whereabouts:
                since = where.since
                there = presences.get(where.place)
                if there is None:
                    presences[where.place] = Presence(where.place, where.count, since, since)
                    continue
                there.count += where.count
                if since < there.earliest:
                    there.earliest = since
                elif since > there.latest:
                    there.latest = since
        return cls(
            waiting=tuple(waiting),
            dispatched=tuple(dispatched),
            unseen=tuple(unseen),
            presences=tuple(presences.values()),
            worst=worst,
        )


@dataclass(frozen=True)
class StepView:
    """What is worked out from the groups is kept: who plans again and again with the same view,
    because nothing about the step changed, pays for it once."""

    number: int  # generates version number + 1
    state: str  # "open" | "ready" | "training"
    # Those not finished, in order of their indexes; empty where state is not "open"
    groups: tuple[GroupView, ...] = ()
    num_finished: int = 0  # groups
    version: int = -1  # policy version that generates its groups; -1: `number`, strictly on-policy
    ready_order: int = 0  # place in the FIFO of ready steps; 0 while open
    fence: int = 0  # of the last training dispatch; 0: none yet
    errors: int = 0  # training passes that raised
    last_error: str = ""
    opened_at: float = 0.0
    dispatched_at: float = 0.0  # last training dispatch
    holder: str = ""  # incarnation of the worker that took the pass; "" while in the queue

    @property
    def num_groups(self) -> int:
        """Groups in all, of a step in state open."""
        return self.num_finished + len(self.groups)

    @cached_property
    def _tally(self) -> _Tally:
        return _Tally.of(self.groups)

    @property
    def is_begun(self) -> bool:
        """Whether any group was ever sent, be it that all of them are waiting to be sent again."""
        if self.state != "open" or self.num_finished:
            return True
        return any(group.attempt for group in self.worst)

    @property
    def waiting(self) -> tuple[GroupView, ...]:
        """Groups to be dispatched, in order."""
        return self._tally.waiting

    @property
    def dispatched(self) -> tuple[GroupView, ...]:
        """Groups under way, in order."""
        return self._tally.dispatched

    @property
    def unseen(self) -> tuple[GroupView, ...]:
        """Of these, the ones that Redis knows nothing of."""
        return self._tally.unseen

    @property
    def presences(self) -> tuple[Presence, ...]:
        """Where the trajectories of the dispatched groups are, by place."""
        return self._tally.presences

    @property
    def worst(self) -> tuple[GroupView, ...]:
        """The group with most errors and the one with most attempts; empty if there is none."""
        return self._tally.worst


@dataclass(frozen=True, slots=True)
class TaskView:
    id: str
    tenant: str
    base_model: str
    state: str  # "queued" | "running" | "paused"
    submitted_at: float
    max_steps: int
    batch_size: int
    group_size: int
    group_cost: int  # tokens that a group is expected to take, prompt included
    group_kv: int = 0  # tokens of KV that a group may be expected to fill; 0: as group_cost
    version: int = -1  # last committed; -1: version 0 is not made yet
    prepare_sent_at: float = 0.0  # prompts tokenised and version 0 made by this call; 0: never sent
    prepare_error: str = ""  # preparation was impossible: the task fails with this
    # Steps in state open, ready or training, oldest first: at most 1 + max_staleness
    steps: tuple[StepView, ...] = ()
    max_staleness: int = 0  # versions that a step's policy may lie behind; 0: strictly on-policy
    priority: int = 0  # among the tasks of its tenant, higher first
    virtual_time: float = 0.0  # as a tenant's, among the tasks of its tenant
    last_start: float = 0.0
    # Learned from spans; 0: not known yet
    group_s: float = 0.0  # rollout device-seconds of a group
    pass_s: float = 0.0  # training device-seconds of a step
    rollout_s: float = 0.0  # from the opening of a step until it is ready, by the clock
    phase: str = ""  # last explained phase and reason: only changes are commanded again
    reason: str = ""
    queue_position: int = 0


@dataclass(frozen=True)
class WorkerView:
    """A worker incarnation: one life of one process."""

    incarnation: str
    name: str  # stable over restarts; a newer incarnation of the same name means this one is dead
    kind: str  # "rollout" | "environment" | "training"
    base_models: tuple[str, ...]
    started_at: float
    last_beat_at: float
    pulse_at: float = 0.0  # its last sign of life without figures
    slots: int = 0  # rollout: sequences its engine holds at once
    # What follows is as of the last beat.
    kv_tokens: int = 0  # tokens of KV that its engine holds at most; 0: it does not say
    kv_tokens_free: int = 0
    adapter_slots: int = 0  # adapters that its engine holds at once; 0: it does not say
    tokens_per_s: float = 0.0  # generated lately
    num_running: int = 0  # sequences that its engine works on
    # Since it started
    busy_s: float = 0.0  # in which its engine or trainer computed
    sequence_s: float = 0.0  # the same, times the sequences then at work; 0: it does not say
    preemptions: int = 0  # sequences put back to wait for lack of KV


@dataclass(frozen=True)
class Counters:
    """What a rollout worker had counted since it started."""

    incarnation: str
    busy_s: float = 0.0
    sequence_s: float = 0.0
    preemptions: int = 0


@dataclass(frozen=True)
class Concurrency:
    """How many sequences a base model's engines get at once, and what that was found from."""

    base_model: str
    limit: int = 0  # sequences near the engines; 0: not limited
    sustained: float = 0.0  # sequences at work on average while some were preempted; 0: never
    preempted_at: float = 0.0  # when a preemption was last seen; 0: never
    counters: tuple[Counters, ...] = ()  # of its workers, as of the last sight


@dataclass(frozen=True)
class Snapshot:
    now: float
    tenants: tuple[TenantView, ...] = ()
    tasks: tuple[TaskView, ...] = ()
    workers: tuple[WorkerView, ...] = ()  # those not known to have stopped
    queues: dict[str, int] = field(default_factory=dict)  # messages waiting, by queue name
    concurrency: tuple[Concurrency, ...] = ()  # as set last, of each base model


@dataclass(frozen=True)
class Admit:
    """queued → running."""

    task: str


@dataclass(frozen=True)
class Prepare:
    """Tokenise the prompts and make version 0. Safe to repeat."""

    task: str


@dataclass(frozen=True)
class OpenStep:
    """Create step `number` with its groups, all waiting, to be generated by `version`."""

    task: str
    number: int
    version: int


@dataclass(frozen=True)
class DispatchGroup:
    """Send a group to `rollout.<base_model>` as `attempt`."""

    task: str
    step: int
    group: str
    attempt: int
    cost: float  # device-seconds, its share of the training pass included
    virtual_time: float  # of the tenant, after this dispatch
    task_virtual_time: float  # of the task
    cause: str = ""  # why it is dispatched again; "" the first time
    last_start: float = 0.0  # of the tenant, after this dispatch
    task_last_start: float = 0.0

    @property
    def settled_s(self) -> float:
        """What of its cost is corrected once the step's device-seconds are known. What an attempt
        that failed took is never known, so the next one's charge stands for it."""
        return 0.0 if self.cause else self.cost


@dataclass(frozen=True)
class DispatchTraining:
    """Send the step to `training.<base_model>` under `fence`; ready, or lost, → training."""

    task: str
    step: int
    fence: int
    cause: str = ""


@dataclass(frozen=True)
class End:
    """The task is over."""

    task: str
    state: str  # "succeeded" | "failed"
    reason: str


@dataclass(frozen=True)
class Explain:
    """What the task is doing or waiting for, for people. Only sent when something changed."""

    task: str
    phase: (
        str  # "queued" | "preparing" | "rollout" | "environment" | "ready" | "training" | "paused"
    )
    reason: str
    queue_position: int = 0  # 1 is next of its tenant's; 0: not queued, or far behind


@dataclass(frozen=True)
class SetConcurrency:
    """Keep this, and show it in the next snapshot. `task` is empty: it is nobody's."""

    concurrency: Concurrency
    task: str = ""


Command = (
    SetConcurrency | Admit | Prepare | OpenStep | DispatchGroup | DispatchTraining | End | Explain
)
