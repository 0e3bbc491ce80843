"""The simulated workers: an engine behind a queue, a trainer, and what their heartbeats tell."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from engine.manager.snapshot import WorkerView

from .cost_models import EngineCost
from .lockstep import LockstepEngine
from .metrics import Span
from .rows import Flight, Step

BEAT_S = 2.0
BASE = "base"
SHARED_QUEUE = f"rollout.{BASE}"
ENVIRONMENT = "environment-1"


class RolloutWorker:
    """An engine, its own queue, and the periods in which it was at work."""

    def __init__(self, number: int, cost: EngineCost, now: float, is_multi_lora: bool) -> None:
        self.name = f"rollout-{number:02d}"
        self.engine = LockstepEngine(cost, now, is_multi_lora)
        self.own: deque[Flight] = deque()  # later turns, whose KV it holds
        self.generation = 0  # of the event that it waits for
        self.spans: list[Span] = []
        self._at_work_since: float | None = None
        self._tokens_before = 0.0
        self._told = 0.0  # tokens as of the last beat
        self.started_at = now
        self.view = self.tell(now)

    @property
    def queue(self) -> str:
        return f"{SHARED_QUEUE}.{self.name}"

    @property
    def has_room(self) -> bool:
        return self.engine.num_held < self.engine.cost.slots

    def note_work(self) -> None:
        """Begin or end a period of work, if that is what has changed."""
        engine = self.engine
        if engine.is_working and self._at_work_since is None:
            self._at_work_since, self._tokens_before = engine.now, engine.tokens
        elif not engine.is_working and self._at_work_since is not None:
            self.end_period()

    def end_period(self) -> None:
        engine = self.engine
        if self._at_work_since is not None:
            tokens = engine.tokens - self._tokens_before
            span = Span("", "rollout", self.name, self._at_work_since, engine.now, tokens)
            self.spans.append(span)
        self._at_work_since = None

    def tell(self, now: float) -> WorkerView:
        """A heartbeat."""
        engine = self.engine
        engine.advance(now)
        tokens, self._told = self._told, engine.tokens
        kv = engine.cost.kv_tokens if engine.cost.tells_kv else 0
        self.view = WorkerView(
            incarnation=self.name,
            name=self.name,
            kind="rollout",
            base_models=(BASE,),
            started_at=self.started_at,
            last_beat_at=now,
            slots=engine.cost.slots,
            kv_tokens=kv,
            kv_tokens_free=max(0, int(kv - engine.kv_held)),
            tokens_per_s=(engine.tokens - tokens) / BEAT_S,
            num_running=engine.num_running,
            busy_s=engine.busy_s,
            sequence_s=engine.sequence_s,
            preemptions=engine.preemptions,
        )
        return self.view


@dataclass(eq=False)
class Trainer:
    """One pass at a time, over one step or several."""

    name: str
    started_at: float
    steps: list[Step] = field(default_factory=list)  # of the pass under way
    began_at: float = 0.0
    pass_s: float = 0.0
    owner_s: dict[str, float] = field(default_factory=dict)  # of finished passes, by tenant

    def view(self, now: float) -> WorkerView:
        return _plain_view(self.name, "training", self.started_at, now)

    def owed_s(self, now: float) -> dict[str, float]:
        """By tenant, of finished passes and of the one under way."""
        found = dict(self.owner_s)
        for step in self.steps:
            tenant = step.task.spec.tenant
            found[tenant] = found.get(tenant, 0.0) + (now - self.began_at) / len(self.steps)
        return found

    def bill(self) -> None:
        """The pass under way ends: its steps bear it alike."""
        self.owner_s = self.owed_s(self.began_at + self.pass_s)


def environment_view(started_at: float, now: float) -> WorkerView:
    return _plain_view(ENVIRONMENT, "environment", started_at, now)


def _plain_view(name: str, kind: str, started_at: float, now: float) -> WorkerView:
    return WorkerView(
        incarnation=name,
        name=name,
        kind=kind,
        base_models=(BASE,),
        started_at=started_at,
        last_beat_at=now,
    )
