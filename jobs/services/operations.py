"""The present state of scheduling by base model, for operators: limits and pacing."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, datetime

from django.db.models import Exists, OuterRef, Q

from engine.manager.pacing import PACED
from jobs.models import BaseModel, Group, Step, Task, Worker
from jobs.services import stored
from jobs.services.heartbeats import living_workers
from jobs.services.snapshots import concurrency_of

HELD_BACK = PACED.rpartition(" ")[0]  # as the planner's reason of a task that is held back has it


@dataclass
class BaseModelState:
    """Of one base model; seconds are learned costs."""

    name: str
    slug: str
    limit: int = 0  # sequences at once; 0: none
    preemptions: int = 0  # since its living workers started
    preempted_at: datetime | None = None  # the last time that one was seen
    slots: int = 0
    num_running: int = 0  # sequences at work, as of the last beats
    num_workers: Counter[str] = field(default_factory=Counter)  # living ones, by kind
    steps: Counter[str] = field(default_factory=Counter)  # begun ones, by state
    training_s: float = 0.0  # seconds of training that the steps begun hold
    num_held_back: int = 0  # tasks whose next step would only wait for the trainer


def base_model_states() -> list[BaseModelState]:
    """All that are enabled or at work."""
    found = {row.slug: _state(row) for row in BaseModel.objects.order_by("name") if row.is_enabled}
    _add_workers(found)
    _add_steps(found)
    return list(found.values())


def _state(row: BaseModel) -> BaseModelState:
    kept = concurrency_of(row.slug, row.concurrency)
    return BaseModelState(
        name=row.name,
        slug=row.slug,
        limit=kept.limit,
        preempted_at=_moment(kept.preempted_at),
    )


def _moment(epoch_s: float) -> datetime | None:
    try:
        return datetime.fromtimestamp(epoch_s, tz=UTC) if epoch_s else None
    except (ValueError, OverflowError, OSError):  # of no year there is
        return None


def _add_workers(found: dict[str, BaseModelState]) -> None:
    for worker in living_workers():
        for slug in worker.base_models:
            if slug in found and worker.kind in (Worker.Kind.ROLLOUT, Worker.Kind.TRAINING):
                state = found[slug]
                state.num_workers[worker.kind] += 1
                state.slots += worker.slots
                state.num_running += stored.whole(worker.stats, "num_running")
                state.preemptions += stored.whole(worker.stats, "preemptions")


def _add_steps(found: dict[str, BaseModelState]) -> None:
    begun = Group.objects.filter(step=OuterRef("pk"), state__in=("dispatched", "finished"))
    steps = Step.objects.filter(
        Q(state__in=(Step.State.READY, Step.State.TRAINING))
        | Q(Exists(begun), state=Step.State.OPEN),
        task__state=Task.State.RUNNING,
    )
    rows = steps.values_list("task__base_model__slug", "state", "task__pass_s")
    for slug, state, pass_s in rows:
        if slug in found:
            found[slug].steps[state] += 1
            found[slug].training_s += pass_s
    waiting = Task.objects.filter(state=Task.State.RUNNING, reason__contains=HELD_BACK)
    for slug in waiting.values_list("base_model__slug", flat=True):
        if slug in found:
            found[slug].num_held_back += 1
