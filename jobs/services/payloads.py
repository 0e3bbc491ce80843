"""How trajectories are written: as a map in a message, as a file of a group in the artifact store.

msgpack with raw bytes for tokens, log-probs and masks; files are zstandard-compressed.
"""

from __future__ import annotations

import hashlib
import os
import struct
import tempfile
from array import array
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import IO, Any

import msgpack
import zstandard

from engine.errors import ArtifactError
from engine.types import ToolCall, Trajectory, TrajectoryKey, Turn
from jobs import artifacts
from jobs.models import Group

_COUNT = struct.Struct("<Q")
_PLACE_BYTES = 8

# What reading bytes that are not what was written may raise.
DAMAGE = (
    *(zstandard.ZstdError, msgpack.UnpackException, struct.error),
    *(OSError, OverflowError, ValueError, TypeError, KeyError, IndexError),
)


def pack_trajectory(trajectory: Trajectory) -> dict[str, Any]:
    """A map of plain values, for msgpack."""
    return asdict(trajectory)


def unpack_trajectory(data: dict[str, Any]) -> Trajectory:
    """The inverse of `pack_trajectory`. Raises TypeError or KeyError on anything else."""
    turns = tuple(_turn(turn) for turn in data["turns"])
    return Trajectory(**{**data, "key": TrajectoryKey(**data["key"]), "turns": turns})


def _turn(data: dict[str, Any]) -> Turn:
    calls = tuple(ToolCall(**call) for call in data.get("calls", ()))
    return Turn(**{**data, "calls": calls})


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

    Raises: ArtifactError if the payload is gone or damaged.
    """
    if not group.key:
        return []
    data = artifacts.read(group.key)
    try:
        return [unpack_trajectory(map_) for map_ in msgpack.unpackb(zstandard.decompress(data))]
    except DAMAGE as error:
        raise _damaged(group.key, error) from error


def write_prompts(task_id: Any, prompts: Iterable[dict[str, Any]]) -> str:
    """Store a task's tokenised prompts, each {"ids": int32 bytes, "row": {…}}; returns the key.

    One compressed map after the other, then where each begins and the last ends, then how many
    there are: neither writing nor reading one ever holds them all.
    """
    places, digest = array("Q", [0]), hashlib.sha256()
    with tempfile.NamedTemporaryFile() as file:
        for prompt in prompts:
            data = zstandard.compress(msgpack.packb(prompt))
            places.append(places[-1] + file.write(data))
            digest.update(data)
        file.write(places.tobytes() + _COUNT.pack(len(places) - 1))
        file.flush()
        key = f"tasks/{task_id}/prompts-{digest.hexdigest()[:12]}.msgpack.zst"
        artifacts.put_file(key, Path(file.name))
    return key


def read_prompt(key: str, index: int) -> dict[str, Any]:
    """One of what `write_prompts` stored. Raises ArtifactError if it is gone or damaged."""
    with artifacts.open_stream(key) as file:
        try:
            return msgpack.unpackb(zstandard.decompress(_prompt_bytes(file, index)))
        except DAMAGE as error:
            raise _damaged(key, error) from error


def _prompt_bytes(file: IO[bytes], index: int) -> bytes:
    """Raises: IndexError, or another of DAMAGE."""
    end = file.seek(-_COUNT.size, os.SEEK_END)
    (count,) = _COUNT.unpack(file.read(_COUNT.size))
    if not 0 <= index < count:
        raise IndexError(f"there are {count} prompts, and no number {index}")
    file.seek(end - (count + 1 - index) * _PLACE_BYTES)
    place = array("Q", file.read(2 * _PLACE_BYTES))
    file.seek(place[0])
    return file.read(place[1] - place[0])


def _damaged(key: str, error: Exception) -> ArtifactError:
    return ArtifactError(f"artifact {key} is damaged: {error}")
