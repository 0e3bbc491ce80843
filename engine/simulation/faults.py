"""What goes wrong, and how often. All chance of a run comes from the one generator given here."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

CALM_DELAY_S = (0.001, 0.02)  # a healthy broker's


@dataclass(frozen=True)
class Rates:
    """Probabilities for each message or call, and mean seconds between larger events."""

    lose: float = 0.02
    double: float = 0.02
    delay: float = 0.03  # by up to `longest_delay_s`: longer than any lease
    reorder: float = 0.2
    longest_delay_s: float = 25.0
    wrong_adapter: float = 0.02  # the engine applies another adapter than asked for
    stage_error: float = 0.02  # a generation or a training pass raises
    slow_store: float = 0.05  # a payload takes up to half a minute to write
    planner_death: float = 0.01  # after its transaction, before its stage calls leave
    between_disasters_s: float = 7.0  # kill, silence, wipe of Redis
    between_visits_s: float = 3.0  # people: submit, pause, resume, cancel, quotas


CALM = Rates(0, 0, 0, 0, 0, 0, 0, 0, 0, between_disasters_s=1e9, between_visits_s=1e9)


class Faults:
    """Throws the dice; after `stop` nothing goes wrong any more."""

    def __init__(self, rng: Random, rates: Rates) -> None:
        self.rng = rng
        self.rates = rates
        self.are_on = True

    def stop(self) -> None:
        self.are_on = False

    def happens(self, probability: float) -> bool:
        return self.are_on and self.rng.random() < probability

    def fate(self) -> list[float]:
        """Seconds until each copy of a message arrives; none if it is lost."""
        usual = self.rng.uniform(*CALM_DELAY_S)
        if self.happens(self.rates.lose):
            return []
        if self.happens(self.rates.double):
            return [usual, self.rng.uniform(0, self.rates.longest_delay_s)]
        if self.happens(self.rates.delay):
            return [self.rng.uniform(0, self.rates.longest_delay_s)]
        return [usual]

    def place(self, length: int) -> int:
        """Where in a queue of so many a message lands: at its end, mostly."""
        return self.rng.randint(0, length) if self.happens(self.rates.reorder) else length

    def pause_s(self, mean_s: float) -> float:
        """Until the next event of a kind whose events come at random."""
        return self.rng.expovariate(1 / mean_s)
