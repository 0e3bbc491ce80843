"""What the simulated cluster knows of tasks, steps, groups and flights, as the planner sees it.

Views are built once and kept until their row changes: a StepView keeps what was worked out from
it, so a plan pays only for what changed. Whoever changes a row calls its `touch`.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from engine.manager.snapshot import GroupView, StepView, TaskView, Whereabouts

from .metrics import StepTime
from .workload import Episode, TaskSpec

MEMORY = 10  # samples that a learned mean goes by


@dataclass
class Mean:
    """A mean of what was seen, of the latest mostly."""

    value: float = 0.0
    count: int = 0

    def add(self, sample: float) -> None:
        self.count += 1
        self.value += (sample - self.value) / min(self.count, MEMORY)


@dataclass(eq=False)
class Flight:
    """A trajectory under way."""

    group: Group
    episode: Episode
    turn: int = 0
    place: str = ""
    since: float = 0.0

    @property
    def context(self) -> int:
        """Tokens that its next answer follows."""
        kind = self.group.step.task.spec.kind
        before = sum(self.episode.tokens[: self.turn])
        return kind.prompt_tokens + before + self.turn * kind.tool_tokens

    def move(self, place: str, now: float) -> None:
        self.place, self.since = place, now
        self.group.touch()


@dataclass(eq=False)
class Group:
    step: Step
    index: int
    id: str
    state: str = "waiting"  # "waiting" | "dispatched"
    attempt: int = 0
    dispatched_at: float = 0.0
    flights: list[Flight] = field(default_factory=list)  # unfinished
    tokens: int = 0  # of those that are over
    device_s: float = 0.0  # of the turns that are over
    _view: GroupView | None = None

    def touch(self) -> None:
        self._view = None
        self.step.touch()

    def view(self) -> GroupView:
        if self._view is None:
            self._view = GroupView(
                id=self.id,
                index=self.index,
                state=self.state,
                attempt=self.attempt,
                dispatched_at=self.dispatched_at,
                whereabouts=self._whereabouts() if self.flights else (),
            )
        return self._view

    def _whereabouts(self) -> tuple[Whereabouts, ...]:
        places: dict[str, tuple[float, int]] = {}
        for flight in self.flights:
            since, count = places.get(flight.place, (0.0, 0))
            places[flight.place] = max(since, flight.since), count + 1
        return tuple(Whereabouts(place, *found) for place, found in places.items())


@dataclass(eq=False)
class Step:
    task: Task
    number: int
    version: int  # that generates it
    opened_at: float
    state: str = "open"  # "open" | "ready" | "training" | "committed"
    unfinished: dict[str, Group] = field(default_factory=dict)  # groups, by id
    ready_order: int = 0
    fence: int = 0
    dispatched_at: float = 0.0  # to a trainer
    holder: str = ""
    tokens: int = 0  # generated
    device_s: float = 0.0  # rollout device-seconds of its finished groups
    charged_s: float = 0.0  # device-seconds that its tenant paid for it so far
    begun_at: float = 0.0  # its first group was sent
    ready_at: float = 0.0
    trained_at: float = 0.0  # its pass began
    _view: StepView | None = None

    def touch(self) -> None:
        self._view = None
        self.task.touch()

    def view(self) -> StepView:
        if self._view is None:
            is_open = self.state == "open"
            unfinished = [group.view() for group in self.unfinished.values()]
            self._view = StepView(
                number=self.number,
                state=self.state,
                groups=tuple(unfinished) if is_open else (),
                num_finished=self.task.spec.batch_size - len(unfinished) if is_open else 0,
                version=self.version,
                ready_order=self.ready_order,
                fence=self.fence,
                opened_at=self.opened_at,
                dispatched_at=self.dispatched_at,
                holder=self.holder,
            )
        return self._view

    def times(self, committed_at: float) -> StepTime:
        return StepTime(
            task=self.task.spec.id,
            number=self.number,
            opened_at=self.opened_at,
            begun_at=self.begun_at,
            ready_at=self.ready_at,
            trained_at=self.trained_at,
            committed_at=committed_at,
            tokens=self.tokens,
            version=self.version,
        )


@dataclass(eq=False)
class Task:
    spec: TaskSpec
    submitted_at: float
    state: str = "queued"
    version: int = -1
    prepare_sent_at: float = 0.0
    steps: list[Step] = field(default_factory=list)  # those not committed, oldest first
    virtual_time: float = 0.0
    last_start: float = 0.0
    phase: str = ""
    reason: str = ""
    queue_position: int = 0
    group_tokens: Mean = field(default_factory=Mean)
    group_s: Mean = field(default_factory=Mean)
    pass_s: Mean = field(default_factory=Mean)
    rollout_s: Mean = field(default_factory=Mean)
    _view: TaskView | None = None

    @property
    def group_cost(self) -> int:
        """Tokens of a group: as measured, or all it may come to before that."""
        spec, kind = self.spec, self.spec.kind
        longest = spec.group_size * kind.turns * (round(kind.length.high) + kind.tool_tokens)
        return round(self.group_tokens.value) or kind.prompt_tokens + longest

    def touch(self) -> None:
        self._view = None

    def view(self, base_model: str) -> TaskView:
        if self._view is None:
            spec, cost = self.spec, self.group_cost
            self._view = TaskView(
                id=spec.id,
                tenant=spec.tenant,
                base_model=base_model,
                state=self.state,
                submitted_at=self.submitted_at,
                max_steps=spec.num_steps,
                batch_size=spec.batch_size,
                group_size=spec.group_size,
                group_cost=cost,
                group_kv=cost,
                version=self.version,
                prepare_sent_at=self.prepare_sent_at,
                steps=tuple(step.view() for step in self.steps),
                max_staleness=spec.max_staleness,
                virtual_time=self.virtual_time,
                last_start=self.last_start,
                group_s=self.group_s.value,
                pass_s=self.pass_s.value,
                rollout_s=self.rollout_s.value,
                phase=self.phase,
                reason=self.reason,
                queue_position=self.queue_position,
            )
        return self._view


@dataclass(eq=False)
class Tenant:
    id: str
    weight: float = 1.0
    virtual_time: float = 0.0
    last_start: float = 0.0
    max_concurrent_tasks: int = 0
