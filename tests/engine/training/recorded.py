"""Recorded batches: fixed tokens, log-probs and rewards, stamped with the version they are for."""

from __future__ import annotations

import random
from collections.abc import Sequence

from engine.types import AdapterRef, Trajectory, TrajectoryKey, Turn, pack_floats, pack_ids


def trajectory(
    adapter: AdapterRef,
    group: int,
    index: int,
    prompt: Sequence[int],
    ids: Sequence[int],
    logprobs: Sequence[float],
    reward: float | None,
    mask: bytes | None = None,
) -> Trajectory:
    start, end = len(prompt), len(prompt) + len(ids)
    turn = Turn(start, end, adapter.digest, "stop", 1.0, 2.0)
    return Trajectory(
        key=TrajectoryKey(adapter.task, adapter.version, f"group{group}", 1, index),
        version=adapter.version,
        digest=adapter.digest,
        ids=pack_ids([*prompt, *ids]),
        prompt_length=start,
        logprobs=pack_floats(list(logprobs)),
        mask=bytes([1] * len(ids)) if mask is None else mask,
        turns=(turn,),
        stop_reason="stop",
        reward=reward,
        rewards={"exact": reward},
    )


def batch(
    adapter: AdapterRef, seed: int, num_groups: int = 3, group_size: int = 4
) -> list[list[Trajectory]]:
    """Random lengths and tokens; about half of the rewards are 1."""
    draw = random.Random(f"{adapter.task}:{seed}")
    groups = []
    for g in range(num_groups):
        prompt = [draw.randrange(3, 250) for _ in range(draw.randint(2, 12))]
        group = []
        for i in range(group_size):
            ids = [draw.randrange(3, 250) for _ in range(draw.randint(1, 9))]
            logprobs = [draw.uniform(-6, -4) for _ in ids]
            reward = float(i < 1 or (i > 1 and draw.random() < 0.5))
            group.append(trajectory(adapter, g, i, prompt, ids, logprobs, reward))
        groups.append(group)
    return groups
