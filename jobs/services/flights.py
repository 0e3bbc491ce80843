"""What Redis says of everything in flight, asked before the planner locks anything."""

from __future__ import annotations

from dataclasses import dataclass, field

from engine.manager.snapshot import Whereabouts
from jobs.models import Group, Task
from jobs.services import joins


@dataclass(frozen=True)
class Flights:
    """A little older than the rows that a plan reads after it.

    What was dispatched in between is missing, as if it were not sent yet; what has ended in between
    is here and no row asks for it.
    """

    places: dict[tuple[str, int], tuple[Whereabouts, ...]] = field(default_factory=dict)
    queues: dict[str, int] = field(default_factory=dict)  # messages waiting, by queue name


def look_at_flights() -> Flights:
    """Ask Redis for every dispatched group and every queue. Raises: RedisError."""
    dispatched = Group.objects.filter(state="dispatched", step__task__state__in=Task.ACTIVE)
    flying = [(str(pk), attempt) for pk, attempt in dispatched.values_list("pk", "attempt")]
    bases = Task.objects.filter(state__in=Task.ACTIVE).values_list("base_model__slug", flat=True)
    queues = {f"{stage}.{base}" for base in set(bases) for stage in ("rollout", "training")}
    places = joins.whereabouts(flying)
    return Flights(
        places=dict(zip(flying, places, strict=True)),
        queues=joins.queue_lengths({"environment", *queues}),
    )
