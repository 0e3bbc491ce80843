"""What an emulation plays: how long each sequence is, each tool call and each pass takes.

Drawn by the simulation's workload and cost model before anything runs, so that both play the same.
Requests of the real stack carry seeds and no names of tasks, so a sequence is found by the seed of
its request, a pass by its task's: the tasks of a script are numbered, and their numbers are their
seeds. Times are the model's; `scale` stretches all of them alike.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from ..prompt_order import batch_rows, trajectory_seed, turn_seed
from ..simulation.performance.cost_models import CostModel, EngineCost
from ..simulation.performance.workload import TaskSpec
from ..types import TrajectoryKey


@dataclass(frozen=True)
class Script:
    """Written by a benchmark, read by every process that emulates."""

    engine: EngineCost
    pass_s: dict[int, float]  # of a training pass, by task's number
    tokens: dict[int, list[int]]  # of each turn of a trajectory, by the trajectory's seed
    tools_s: dict[int, list[float]]  # of the call after each of its turns but the last
    scale: float = 1.0  # seconds of this clock to a second of the model

    def decode_s(self, sequences: int) -> float:
        """Of a decode step, by this clock."""
        return self.scale * self.engine.decode_s(sequences)

    def turn_tokens(self) -> dict[int, int]:
        """Of every turn, by the seed of its request."""
        return {
            turn_seed(seed, turn): count
            for seed, counts in self.tokens.items()
            for turn, count in enumerate(counts)
        }

    def tool_s(self, key: TrajectoryKey, row: dict[str, Any], turn: int) -> float | None:
        """How long the call after turn 0, 1, … takes, by this clock; None if there is none.

        row: as `prompt_row` makes it.
        """
        order = _order(row["task"], key.step, row["batch_size"])
        place = order.index(row["prompt"])
        calls = self.tools_s[trajectory_seed(row["task"], key.step, place, key.index)]
        return self.scale * calls[turn] if turn < len(calls) else None


def prompt_row(task: int, prompt: int, batch_size: int) -> dict[str, int]:
    """What a row of a task's dataset must hold, which has as many rows as a step has groups."""
    return {"task": task, "prompt": prompt, "batch_size": batch_size}


def make_script(tasks: Sequence[TaskSpec], cost: CostModel, scale: float) -> Script:
    """tasks: the first is number 0."""
    tokens: dict[int, list[int]] = {}
    tools_s: dict[int, list[float]] = {}
    for number, task in enumerate(tasks):
        for step in range(task.num_steps):
            for group in range(task.batch_size):
                for index, episode in enumerate(task.group(step, group)):
                    seed = trajectory_seed(number, step, group, index)
                    tokens[seed] = list(episode.tokens)
                    tools_s[seed] = list(episode.tools_s)
    pass_s = {number: cost.pass_s[task.kind.name] for number, task in enumerate(tasks)}
    return Script(cost.engine, pass_s, tokens, tools_s, scale)


def write_script(script: Script, path: Path) -> None:
    path.write_text(json.dumps(asdict(script)), encoding="utf-8")


def read_script(path: str | os.PathLike[str]) -> Script:
    """Raises: OSError, or ValueError, TypeError, KeyError if it is no script."""
    found = json.loads(Path(path).read_text(encoding="utf-8"))
    return Script(
        engine=EngineCost(**found["engine"]),
        scale=found["scale"],
        pass_s=_numbered(found["pass_s"]),
        tokens=_numbered(found["tokens"]),
        tools_s=_numbered(found["tools_s"]),
    )


def _numbered(mapping: dict[str, Any]) -> dict[int, Any]:
    """JSON knows only text for keys."""
    return {int(key): value for key, value in mapping.items()}


@lru_cache(maxsize=1_000)
def _order(task: int, step: int, batch_size: int) -> list[int]:
    return batch_rows(task, step, batch_size, batch_size)
