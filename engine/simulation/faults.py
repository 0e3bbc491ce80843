"""What goes wrong, and how often. All chance of a run comes from the seed given here.

Each concern has a stream of dice of its own, and a fault that is switched off is thrown for all the
same. So a run without one kind of fault is nearly the same run, which is what shrinking lives on.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields, replace
from random import Random

CALM_DELAY_S = (0.001, 0.02)  # a healthy broker's
LONGEST_DELAY_S = 15.0  # longer than any lease


@dataclass(frozen=True)
class Rates:
    """How often each kind of fault comes: the names are those of `--without`."""

    # Probabilities, for each message or call
    lose: float = 0.02
    double: float = 0.02
    delay: float = 0.03
    reorder: float = 0.2
    adapter: float = 0.02  # the engine applies another adapter than asked for
    error: float = 0.02  # a generation or a training pass raises
    store: float = 0.04  # a payload takes long to write
    conflict: float = 0.02  # a transaction fails: it is tried again, or given up
    planner: float = 0.01  # the planner dies after its transaction, before its stage calls leave
    slow: float = 0.03  # a tool takes many seconds
    stuck: float = 0.01  # a tool never answers: its time limit ends the episode
    # Weights among the disasters; one that is switched off is a disaster that does not happen
    kill: float = 5
    silence: float = 3
    wipe: float = 2  # of Redis
    clock: float = 2
    # Weights among what people do, likewise
    submit: float = 6
    flood: float = 1
    pause: float = 3
    resume: float = 4
    cancel: float = 1
    quota: float = 4

    def without(self, kinds: Iterable[str]) -> Rates:
        """The same, but for these. Raises: TypeError for a kind that there is not."""
        return replace(self, **dict.fromkeys(kinds, 0.0))


KINDS = tuple(field.name for field in fields(Rates))
DISASTERS = ("kill", "silence", "wipe", "clock")
ACTS = ("submit", "flood", "pause", "resume", "cancel", "quota")
CALM = Rates().without(KINDS)


class Faults:
    """Throws the dice; after `stop` nothing goes wrong any more."""

    def __init__(self, seed: int, rates: Rates) -> None:
        self._seed = seed
        self.rates = rates
        self.are_on = True
        self.rng = self.stream("work")
        self._messages, self._calls = self.stream("messages"), self.stream("calls")

    def stream(self, concern: str) -> Random:
        """Dice of its own for a concern."""
        return Random(f"{self._seed} {concern}")

    def stop(self) -> None:
        self.are_on = False

    def happens(self, probability: float) -> bool:
        return self._calls.random() < probability and self.are_on

    def fate(self) -> list[float]:
        """Seconds until each copy of a message arrives; none if it is lost."""
        rates, random = self.rates, self._messages.random
        shortest, longest = CALM_DELAY_S
        usual = shortest + (longest - shortest) * random()
        long, dice = LONGEST_DELAY_S * random(), random()
        if not self.are_on:
            return [usual]
        if dice < rates.lose:
            return []
        # Thresholds that do not move when another kind is switched off
        if 0.1 <= dice < 0.1 + rates.double:
            return [usual, long]
        if 0.2 <= dice < 0.2 + rates.delay:
            return [long]
        return [usual]

    def place(self, length: int) -> int:
        """Where in a queue of so many a message lands: at its end, mostly."""
        dice, place = self._messages.random(), int(self._messages.random() * (length + 1))
        return place if dice < self.rates.reorder and self.are_on else length
