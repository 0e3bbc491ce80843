"""How a trajectory grows, turn by turn, and when it has to end.

Token in, token out: what was generated is appended as it came and never tokenised again.
"""

from __future__ import annotations

from dataclasses import replace

from ..types import Generation, Trajectory, Turn, pack_floats, pack_ids, unpack_ids
from .environment import Reply


def with_turn(trajectory: Trajectory, generation: Generation, worker: str) -> Trajectory:
    """The trajectory with one more turn. worker: name of the rollout worker that generated it."""
    start = trajectory.num_tokens
    turn = Turn(
        start=start,
        end=start + len(generation.ids),
        digest=generation.digest,
        finish_reason=generation.finish_reason,
        started_at=generation.started_at,
        finished_at=generation.finished_at,
        worker=worker,
        device_s=generation.device_s,
    )
    return replace(
        trajectory,
        ids=trajectory.ids + pack_ids(list(generation.ids)),
        logprobs=trajectory.logprobs + pack_floats(list(generation.logprobs)),
        mask=trajectory.mask + b"\x01" * len(generation.ids),
        turns=(*trajectory.turns, turn),
        stop_reason=generation.finish_reason,
    )


def with_observation(trajectory: Trajectory, reply: Reply) -> Trajectory:
    """The trajectory with the answer to its last turn: log-probs 0.0 and mask 0."""
    ids = reply.observation_ids
    return replace(
        told(trajectory, reply),
        ids=trajectory.ids + pack_ids(list(ids)),
        logprobs=trajectory.logprobs + pack_floats([0.0] * len(ids)),
        mask=trajectory.mask + b"\x00" * len(ids),
        stop_reason="",
    )


def told(trajectory: Trajectory, reply: Reply) -> Trajectory:
    """The trajectory with the answer to its last turn for people alone."""
    *turns, last = trajectory.turns
    answered = replace(last, observation=reply.observation, calls=reply.calls)
    return replace(trajectory, turns=(*turns, answered))


def last_answer(trajectory: Trajectory) -> list[int]:
    """Token ids of the last turn, a stop id included."""
    turn = trajectory.turns[-1]
    return unpack_ids(trajectory.ids[4 * turn.start : 4 * turn.end])


def tokens_left(trajectory: Trajectory, max_completion_length: int) -> int:
    """Tokens that may still follow; whatever stands after the prompt counts."""
    return max_completion_length - (trajectory.num_tokens - trajectory.prompt_length)


def limit_reached(
    trajectory: Trajectory, reply: Reply, max_turns: int, max_completion_length: int
) -> str:
    """Why the episode ends although the environment would go on, as a stop reason; "" if it may.

    "length": the last turn was cut off, or no token could be generated after the observation.
    """
    left = tokens_left(trajectory, max_completion_length) - len(reply.observation_ids)
    if trajectory.turns[-1].finish_reason != "stop" or left < 1:
        return "length"
    return "turns" if len(trajectory.turns) >= max_turns else ""
