"""What a check knows of the machine: who generates, how fast, how much it may ask for at once."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from django.db.models import F, Sum
from django.utils import timezone

from engine.preflight import Outcome, Speeds
from jobs.models import BaseModel, Span, Task, Worker
from jobs.services import stored
from jobs.services.heartbeats import living_workers

MIN_WINDOW, MAX_WINDOW = 8, 64  # sequences in flight
LATELY = timedelta(hours=24)


def _living(slug: str) -> list[Worker]:
    """Rollout workers of a base model."""
    rollout = living_workers(Worker.Kind.ROLLOUT)
    return [worker for worker in rollout if slug in worker.base_models]


def incarnations(slug: str) -> frozenset[str]:
    """Of the living rollout workers of a base model."""
    return frozenset(str(worker.pk) for worker in _living(slug))


def window(slug: str) -> int:
    """Sequences in flight: a quarter of the slots where they are idle, else an eighth."""
    engines = _living(slug)
    slots = sum(engine.slots for engine in engines)
    is_busy = any(stored.whole(engine.stats, "num_running") for engine in engines)
    return min(MAX_WINDOW, max(MIN_WINDOW, slots // (8 if is_busy else 4)))


def speeds(base_model: BaseModel, outcomes: Sequence[Outcome], generated_s: float) -> Speeds:
    """Of the engines now, or of the check itself if that was faster; of training lately.

    generated_s: seconds in which the outcomes were generated.
    """
    told_by_engines = sum(
        stored.number(engine.stats, "tokens_per_s") for engine in _living(base_model.slug)
    )
    generated = sum(outcome.num_tokens for outcome in outcomes)
    own = generated / generated_s if generated_s > 0 else 0.0
    same = {"task__base_model": base_model, "ended_at__gte": timezone.now() - LATELY}
    spans = Span.objects.filter(stage=Span.Stage.TRAINING, tokens__gt=0, **same)
    trained = spans.aggregate(tokens=Sum("tokens"), time=Sum(F("ended_at") - F("started_at")))
    seconds = trained["time"].total_seconds() if trained["time"] else 0.0
    running = Task.objects.filter(state=Task.State.RUNNING, base_model=base_model)
    return Speeds(
        tokens_per_s=max(told_by_engines, own),
        num_at_once=window(base_model.slug),
        num_other_tasks=running.count(),
        train_tokens_per_s=trained["tokens"] / seconds if seconds > 0 else 0.0,
    )
