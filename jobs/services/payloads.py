"""How trajectories are written: as a map in a message, as a file of a group in the artifact store.

msgpack with raw bytes for tokens, log-probs and masks; files are zstandard-compressed.
"""

from __future__ import annotations

import hashlib
from dataclasses import asdict
from typing import Any

import msgpack
import zstandard

from engine.types import Trajectory, TrajectoryKey, Turn
from jobs import artifacts
from jobs.models import Group


def pack_trajectory(trajectory: Trajectory) -> dict[str, Any]:
    """A map of plain values, for msgpack."""
    return asdict(trajectory)


def unpack_trajectory(data: dict[str, Any]) -> Trajectory:
    """The inverse of `pack_trajectory`. Raises TypeError or KeyError on anything else."""
    turns = tuple(Turn(**turn) for turn in data["turns"])
    return Trajectory(**{**data, "key": TrajectoryKey(**data["key"]), "turns": turns})


def write_group(group: Group, trajectories: list[Trajectory]) -> str:
    """Store a finished group's trajectories, ordered by index; returns the artifact's key."""
    packed = msgpack.packb([pack_trajectory(trajectory) for trajectory in trajectories])
    data = zstandard.compress(packed)
    digest = hashlib.sha256(data).hexdigest()[:12]
    step = group.step
    key = f"tasks/{step.task_id}/steps/{step.number}/{group.index}-{digest}.msgpack.zst"
    artifacts.put(key, data)
    return key


def read_group(group: Group) -> list[Trajectory]:
    """A finished group's trajectories, ordered by index.

    Raises: ArtifactError if the payload is gone or the group has none yet.
    """
    if not group.key:
        return []
    packed = zstandard.decompress(artifacts.read(group.key))
    return [unpack_trajectory(data) for data in msgpack.unpackb(packed)]


def write_prompts(task_id: Any, prompts: list[dict[str, Any]]) -> str:
    """Store a task's tokenised prompts, each {"ids": int32 bytes, "row": {…}}; returns the key."""
    data = zstandard.compress(msgpack.packb(prompts))
    key = f"tasks/{task_id}/prompts-{hashlib.sha256(data).hexdigest()[:12]}.msgpack.zst"
    artifacts.put(key, data)
    return key


def read_prompts(key: str) -> list[dict[str, Any]]:
    """What `write_prompts` stored. Raises ArtifactError if it is gone."""
    return msgpack.unpackb(zstandard.decompress(artifacts.read(key)))
