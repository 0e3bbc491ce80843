"""The simulated Redis: queues that may lose, double, delay and reorder, and the joins of groups.

All of it is gone after `wipe`. The hashes follow jobs/services/joins.py: an attempt whose flight is
gone is dead, a result is set if absent, exactly one join sees the group full.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from engine.manager.snapshot import Whereabouts

from .clock import Clock
from .facts import Sample


@dataclass(frozen=True)
class GroupMessage:
    """To a rollout worker: generate these trajectories."""

    task: str
    group: str
    attempt: int
    size: int
    digest: str  # of the adapter that must generate them


@dataclass(frozen=True)
class TurnMessage:
    """To a rollout worker: generate the next turn of this trajectory."""

    task: str
    sample: Sample
    digest: str


@dataclass(frozen=True)
class SampleMessage:
    """To an environment worker: answer this, and grade it if it is over."""

    task: str
    sample: Sample
    digest: str  # of the adapter that must generate further turns


@dataclass(frozen=True)
class PassMessage:
    """To a training worker: train this step under this fence."""

    task: str
    step: int
    fence: int


Message = GroupMessage | TurnMessage | SampleMessage | PassMessage


@dataclass
class _Flight:
    size: int
    at: dict[int, tuple[str, float]]  # by index: place, since
    results: dict[int, Sample] = field(default_factory=dict)


class Broker:
    """Queues by name, and a flight for each live (group, attempt)."""

    def __init__(
        self,
        clock: Clock,
        fate: Callable[[], list[float]],
        place: Callable[[int], int],
        arrived: Callable[[str], None],
        moved: Callable[[str], None],
    ) -> None:
        """fate: delays of each copy of a message (none: lost). place: where in a queue of so many
        a message lands. arrived: called with the queue's name when a message is there. moved:
        called with a group's id when what is known of its trajectories changed."""
        self.queues: dict[str, deque[Message]] = {}
        self.flights: dict[tuple[str, int], _Flight] = {}
        self.delayed: list[Message] = []
        self._clock, self._fate, self._place = clock, fate, place
        self._arrived, self._moved = arrived, moved
        self._life = 0  # counts wipes: what was on its way before one never arrives

    def send(self, queue: str, message: Message) -> None:
        for delay_s in self._fate():
            self.delayed.append(message)
            self._clock.after(delay_s, self._arrive, queue, message, self._life)

    def _arrive(self, queue: str, message: Message, life: int) -> None:
        if life != self._life:
            return
        self.delayed.remove(message)
        waiting = self.queues.setdefault(queue, deque())
        waiting.insert(self._place(len(waiting)), message)
        self._arrived(queue)

    def pop(self, queue: str) -> Message | None:
        waiting = self.queues.get(queue)
        return waiting.popleft() if waiting else None

    def lengths(self) -> dict[str, int]:
        return {name: len(waiting) for name, waiting in self.queues.items()}

    def wipe(self) -> None:
        """An empty Redis takes the place of this one."""
        self._life += 1
        for group, _ in self.flights:
            self._moved(group)
        self.queues.clear()
        self.flights.clear()
        self.delayed.clear()

    def open_attempt(self, group: str, attempt: int, size: int, place: str) -> None:
        """Begin an attempt; the one before is dead."""
        self.forget(group, attempt - 1)
        at = dict.fromkeys(range(size), (place, self._clock.wall))
        self.flights[group, attempt] = _Flight(size, at)
        self._moved(group)

    def move(self, group: str, attempt: int, indexes: Iterable[int], place: str) -> bool:
        """Say where trajectories are; False if the attempt is dead."""
        flight = self.flights.get((group, attempt))
        if flight is None:
            return False
        at = (place, self._clock.wall)
        for index in indexes:
            flight.at[index] = at
        self._moved(group)
        return True

    def join(self, sample: Sample) -> str:
        """Add a graded trajectory: "joined", "late", or "full" once, for the one that was last."""
        flight = self.flights.get((sample.group, sample.attempt))
        if flight is None:
            return "late"
        is_new = sample.index not in flight.results
        flight.results.setdefault(sample.index, sample)
        if is_new and len(flight.results) == flight.size:
            return "full"
        flight.at.pop(sample.index, None)
        self._moved(sample.group)
        return "joined"

    def collect(self, group: str, attempt: int) -> tuple[Sample, ...]:
        """The graded trajectories of an attempt in order; empty if it is dead."""
        flight = self.flights.get((group, attempt))
        return tuple(flight.results[index] for index in sorted(flight.results)) if flight else ()

    def forget(self, group: str, attempt: int) -> None:
        if self.flights.pop((group, attempt), None):
            self._moved(group)

    def whereabouts(self, group: str, attempt: int) -> tuple[Whereabouts, ...]:
        flight = self.flights.get((group, attempt))
        found: dict[str, tuple[float, int]] = {}
        for place, since in flight.at.values() if flight else ():
            latest, count = found.get(place, (0.0, 0))
            found[place] = (max(since, latest), count + 1)
        return tuple(Whereabouts(place, *rest) for place, rest in sorted(found.items()))
