"""What Redis says of everything in flight, asked before the planner locks anything."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import timedelta

from django.utils import timezone

from engine.manager.snapshot import Whereabouts
from jobs.models import Group, Task, Worker
from jobs.services import joins, pulses


@dataclass(frozen=True)
class Flights:
    """A little older than the rows that a plan reads after it.

    What was dispatched in between is missing, as if it were not sent yet; what has ended in between
    is here and no row asks for it.
    """

    places: dict[tuple[str, int], tuple[Whereabouts, ...]] = field(default_factory=dict)
    queues: dict[str, int] = field(default_factory=dict)  # messages waiting, by queue name
    pulses: dict[str, float] = field(default_factory=dict)  # epoch s, by worker incarnation
    number: int = 0  # of the look, its own in this process
    is_old: bool = False  # it was taken for an earlier plan


CHEAP_S = 0.02  # a look that took no longer is taken anew for each plan
KEPT_TIMES = 10  # how often as long as it took a look is kept, so that looking is not all there is
KEPT_S = 1.0  # at most; leases are judged by the second
DEAD_S = 60.0  # thrice the time that a worker takes to start


class Lookout:
    """The planner's looks. With thousands of groups in flight a look costs more than a plan does,
    and little of it changes between two plans, so one is kept for a while."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._last = Flights()
        self._until = 0.0
        self._num_looks = 0

    def look(self, anew: bool = False) -> Flights:
        """The last look, if it is worth keeping; else, or if asked for anew, another.

        Raises: RedisError.
        """
        began = self._clock()
        if began < self._until and not anew:
            return replace(self._last, is_old=True)
        self._num_looks += 1
        self._last = replace(look_at_flights(), number=self._num_looks)
        took_s = self._clock() - began
        kept_s = min(KEPT_S, KEPT_TIMES * took_s) if took_s > CHEAP_S else 0.0
        self._until = began + took_s + kept_s
        return self._last


def look_at_flights() -> Flights:
    """Ask Redis for every dispatched group, queue and worker. Raises: RedisError."""
    dispatched = Group.objects.filter(state="dispatched", step__task__state__in=Task.ACTIVE)
    flying = [(str(pk), attempt) for pk, attempt in dispatched.values_list("pk", "attempt")]
    bases = Task.objects.filter(state__in=Task.ACTIVE).values_list("base_model__slug", flat=True)
    queues = {f"{stage}.{base}" for base in set(bases) for stage in ("rollout", "training")}
    places = joins.whereabouts(flying)
    named = {where.place for found in places for where in found}
    own = {place.removeprefix("queue:") for place in named if place.startswith("queue:rollout.")}
    return Flights(
        pulses=pulses.taken(),
        places=dict(zip(flying, places, strict=True)),
        queues=joins.queue_lengths({"environment", *queues, *own}),
    )


def forget_dead_queues() -> int:
    """Throw away what waits for rollout workers that are gone; returns how many queues those were.

    The leases have long dispatched it again. Only names that have been silent for long: a worker
    that is just being restarted goes on with what waits for it.
    """
    since = timezone.now() - timedelta(seconds=DEAD_S)
    rollout = Worker.objects.filter(kind=Worker.Kind.ROLLOUT)
    living = set(rollout.filter(last_beat_at__gte=since).values_list("name", flat=True))
    gone = rollout.exclude(name__in=living).values_list("name", "base_models")
    return joins.drop_queues(f"rollout.{base}.{name}" for name, bases in gone for base in bases)
