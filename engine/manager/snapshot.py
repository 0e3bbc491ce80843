"""What the planner sees and what it answers with. Times are epoch seconds, costs are tokens.

A snapshot is a complete, consistent picture of every task that is not in a terminal state, plus
what Redis and the workers' heartbeats say about what is in flight. Commands are decisions; `jobs`
persists each by a conditional update and sends the stage call on commit.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class TenantView:
    id: str
    weight: float = 1.0  # > 0; share of rollout tokens among tenants that have work
    virtual_time: float = 0.0  # tokens dispatched so far / weight (start-time fair queueing)
    max_concurrent_tasks: int = 0  # tasks in state running or paused; 0: no limit
    tokens_per_day: int = 0  # 0: no limit
    tokens_today: int = 0
    is_full: bool = False  # it stores as much as it may
    is_suspended: bool = False


@dataclass(frozen=True)
class Whereabouts:
    """Where the unfinished trajectories of a dispatched group are, as its Redis hash says."""

    place: str  # "queue:<name>", "worker:<incarnation>"
    since: float  # the latest of them came there
    count: int  # trajectories


@dataclass(frozen=True)
class GroupView:
    id: str
    index: int  # 0 … batch_size - 1
    state: str  # "waiting" | "dispatched" | "finished"
    attempt: int = 0  # 0: never dispatched
    errors: int = 0  # attempts that ended in an engine error (not those that were lost)
    last_error: str = ""
    dispatched_at: float = 0.0
    whereabouts: tuple[
        Whereabouts, ...
    ] = ()  # of a dispatched group; empty: Redis knows nothing of it


@dataclass(frozen=True)
class StepView:
    number: int  # generates version number + 1
    state: str  # "open" | "ready" | "training"
    groups: tuple[GroupView, ...] = ()  # empty where state is not "open"
    ready_order: int = 0  # place in the FIFO of ready steps; 0 while open
    fence: int = 0  # of the last training dispatch; 0: none yet
    errors: int = 0  # training passes that raised
    last_error: str = ""
    opened_at: float = 0.0
    dispatched_at: float = 0.0  # last training dispatch
    holder: str = ""  # incarnation of the worker that took the pass; "" while in the queue


@dataclass(frozen=True)
class TaskView:
    id: str
    tenant: str
    base_model: str
    state: str  # "queued" | "running" | "paused"
    submitted_at: float
    max_steps: int
    batch_size: int
    group_size: int
    group_cost: int  # tokens that a group is expected to cost, prompt included
    group_kv: int = 0  # tokens of KV that a group may be expected to fill; 0: as group_cost
    version: int = -1  # last committed; -1: version 0 is not made yet
    prepare_sent_at: float = 0.0  # prompts tokenised and version 0 made by this call; 0: never sent
    prepare_error: str = ""  # preparation was impossible: the task fails with this
    step: StepView | None = None  # the step in state open, ready or training, if any
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
    slots: int = 0  # rollout: sequences its engine holds at once
    # What follows is as of the last beat.
    kv_tokens: int = 0  # tokens of KV that its engine holds at most; 0: it does not say
    kv_tokens_free: int = 0
    adapter_slots: int = 0  # adapters that its engine holds at once; 0: it does not say
    tokens_per_s: float = 0.0  # generated lately


@dataclass(frozen=True)
class Snapshot:
    now: float
    tenants: tuple[TenantView, ...] = ()
    tasks: tuple[TaskView, ...] = ()
    workers: tuple[WorkerView, ...] = ()  # those not known to have stopped
    queues: dict[str, int] = field(default_factory=dict)  # messages waiting, by queue name


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
    """Create step `number` with its groups, all waiting."""

    task: str
    number: int


@dataclass(frozen=True)
class DispatchGroup:
    """Send a group to `rollout.<base_model>` as `attempt`."""

    task: str
    step: int
    group: str
    attempt: int
    cost: int  # tokens, added to the tenant's use / weight
    virtual_time: float  # of the tenant, after this dispatch
    cause: str = ""  # why it is dispatched again; "" the first time


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


Command = Admit | Prepare | OpenStep | DispatchGroup | DispatchTraining | End | Explain
