"""Which prompts a step uses, and with which seeds: functions of the task's seed alone.

A step that is dispatched again, or a run that is repeated, uses the same ones.
"""

import hashlib
import random


def batch_rows(seed: int, step: int, batch_size: int, num_prompts: int) -> list[int]:
    """Indices (P) of the prompts of `step`: every epoch is a shuffle of all prompts.

    Raises: ValueError if there are no prompts.
    """
    if num_prompts < 1:
        raise ValueError("a task needs at least one prompt")
    shuffles: dict[int, list[int]] = {}
    rows = []
    for place in range(step * batch_size, (step + 1) * batch_size):
        epoch, offset = divmod(place, num_prompts)
        if epoch not in shuffles:
            shuffles[epoch] = list(range(num_prompts))
            random.Random(f"{seed}:{epoch}").shuffle(shuffles[epoch])
        rows.append(shuffles[epoch][offset])
    return rows


def trajectory_seed(seed: int, step: int, group: int, index: int) -> int:
    """Seed of one trajectory's sampling, 0 … 2**62 - 1; not of the attempt, so a repeat repeats."""
    return _seed_of(f"{seed}:{step}:{group}:{index}")


def turn_seed(seed: int, turn: int) -> int:
    """Seed of turn 0, 1, … of a trajectory whose seed is `seed`; the first turn's is that one.

    An engine numbers a turn's random numbers from its first token: with one seed for all turns each
    would be drawn from the same numbers.
    """
    return _seed_of(f"{seed}:turn {turn}") if turn else seed


def _seed_of(text: str) -> int:
    digest = hashlib.sha256(text.encode()).digest()
    return int.from_bytes(digest[:8], "little") >> 2
