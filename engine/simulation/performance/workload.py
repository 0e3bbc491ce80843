"""What tasks ask of a cluster: answer lengths, turns and waits for tools, drawn by seed alone.

The mix is the paper's (arXiv:2605.08527): GSM8K-like tasks, AMC-like ones with longer answers, and
agentic search with slow tools. An episode depends on (seed, task, step, group) and on nothing that
happens, so every schedule, simulated or emulated, gets the same work. Knows nothing of schedules.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random


@dataclass(frozen=True)
class LogNormal:
    """A clipped log-normal distribution: exp(N(mu, sigma)), kept within [low, high]."""

    mu: float
    sigma: float
    low: float
    high: float

    def draw(self, rng: Random) -> float:
        return min(self.high, max(self.low, rng.lognormvariate(self.mu, self.sigma)))


@dataclass(frozen=True)
class Kind:
    """A kind of task."""

    name: str
    length: LogNormal  # tokens of a turn's answer
    turns: int = 1
    tool: LogNormal | None = None  # seconds between two turns
    prompt_tokens: int = 0  # of a trajectory's first turn; a group computes them once
    tool_tokens: int = 0  # that a tool's answer adds to the context


@dataclass(frozen=True)
class Episode:
    """One trajectory: tokens generated in each turn, and the seconds between two turns."""

    tokens: tuple[int, ...]
    tools_s: tuple[float, ...] = ()

    @property
    def num_tokens(self) -> int:
        return sum(self.tokens)

    @property
    def away_s(self) -> float:
        return sum(self.tools_s)


@dataclass(frozen=True)
class TaskSpec:
    """A task as it is submitted."""

    id: str
    kind: Kind
    num_steps: int
    tenant: str = "tenant"
    batch_size: int = 64  # groups of a step
    group_size: int = 4
    max_staleness: int = 0
    submitted_s: float = 0.0  # after the start of the run
    seed: int = 0

    def group(self, step: int, index: int) -> tuple[Episode, ...]:
        """The trajectories of a group."""
        rng = Random(f"{self.seed}/{self.id}/{step}/{index}")
        return tuple(_episode(self.kind, rng) for _ in range(self.group_size))

    def step(self, step: int) -> list[Episode]:
        """All trajectories of a step."""
        groups = (self.group(step, index) for index in range(self.batch_size))
        return [episode for group in groups for episode in group]


def _episode(kind: Kind, rng: Random) -> Episode:
    tokens = tuple(max(1, round(kind.length.draw(rng))) for _ in range(kind.turns))
    if kind.tool is None:
        return Episode(tokens)
    return Episode(tokens, tuple(kind.tool.draw(rng) for _ in range(kind.turns - 1)))


GSM = Kind("gsm", LogNormal(5.5, 0.6, 20, 2048))
AMC = Kind("amc", LogNormal(6.9, 0.6, 100, 4096))
SEARCH = Kind("search", LogNormal(4.6, 0.5, 10, 512), turns=4, tool=LogNormal(0.3, 0.8, 0.2, 30.0))
MIX = (GSM, AMC, SEARCH)


def mixed_tasks(
    count: int,
    num_steps: int,
    *,
    kinds: Sequence[Kind] = MIX,
    seed: int = 0,
    batch_size: int = 64,
    group_size: int = 4,
    max_staleness: int = 0,
) -> list[TaskSpec]:
    """Tasks of each kind in turn, of one tenant, all submitted at the start."""
    return [
        TaskSpec(
            id=f"{index:04d}-{kinds[index % len(kinds)].name}",
            kind=kinds[index % len(kinds)],
            num_steps=num_steps,
            batch_size=batch_size,
            group_size=group_size,
            max_staleness=max_staleness,
            seed=seed,
        )
        for index in range(count)
    ]
