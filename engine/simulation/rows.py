"""The rows of the simulated database. Only `store.Store` changes them."""

from __future__ import annotations

from dataclasses import dataclass, field

from .facts import Sample

TOKENS = 10  # that a trajectory is expected to take


@dataclass
class TenantRow:
    id: str
    weight: float = 1.0
    virtual_time: float = 0.0
    last_start: float = 0.0
    max_concurrent_tasks: int = 0
    tokens_per_day: int = 0
    tokens_today: int = 0
    is_full: bool = False
    is_suspended: bool = False


@dataclass
class GroupRow:
    id: str
    index: int
    state: str = "waiting"
    attempt: int = 0
    errors: int = 0
    last_error: str = ""
    dispatched_at: float = 0.0
    samples: tuple[Sample, ...] = ()  # the payload, once finished


@dataclass
class StepRow:
    number: int
    groups: list[GroupRow]
    version: int  # policy version that generates them
    state: str = "open"  # "open" | "ready" | "training" | "committed"
    ready_order: int = 0
    fence: int = 0
    errors: int = 0
    last_error: str = ""
    opened_at: float = 0.0
    dispatched_at: float = 0.0
    holder: str = ""
    charged_s: float = 0.0  # device-seconds that its tenant paid for it so far

    @property
    def rollout_s(self) -> float:
        """Device-seconds of its finished groups."""
        return sum(sample.busy_s for group in self.groups for sample in group.samples)


@dataclass
class TaskRow:
    id: str
    tenant: str
    base_model: str
    submitted_at: float
    max_steps: int
    batch_size: int
    group_size: int
    max_turns: int = 1
    max_staleness: int = 0
    priority: int = 0
    virtual_time: float = 0.0
    last_start: float = 0.0
    poison: str = ""  # what of the task itself always fails: "", "dataset", "grader", "training"
    state: str = "queued"  # "queued" | "running" | "paused" | "succeeded" | "failed" | "cancelled"
    prepare_sent_at: float = 0.0
    prepare_error: str = ""
    versions: list[tuple[int, str]] = field(default_factory=list)  # (number, digest) as committed
    steps: list[StepRow] = field(default_factory=list)
    group_s: float = 0.0  # learned costs
    pass_s: float = 0.0
    rollout_s: float = 0.0
    phase: str = ""
    reason: str = ""
    queue_position: int = 0

    @property
    def is_over(self) -> bool:
        return self.state not in ("queued", "running", "paused")

    @property
    def live_steps(self) -> list[StepRow]:
        return [step for step in self.steps if step.state != "committed"]

    @property
    def group_cost(self) -> int:
        """Tokens that a group is expected to take."""
        return TOKENS * self.group_size

    def digest_of(self, number: int) -> str:
        """Digest of a committed version; "" if there is none."""
        return next((digest for n, digest in self.versions if n == number), "")
