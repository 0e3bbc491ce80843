"""Makes finished trajectories, as the stages would."""

from engine.types import Trajectory, TrajectoryKey, Turn, pack_floats, pack_ids


def trajectory(
    group: object,
    index: int = 0,
    *,
    attempt: int = 1,
    version: int = 0,
    step: int | None = None,
    digest: str = "d0",
    reward: float | None = 1.0,
) -> Trajectory:
    """Prompt [5, 6], completion [7, 8, 9]."""
    return Trajectory(
        key=TrajectoryKey("task", version if step is None else step, str(group), attempt, index),
        version=version,
        digest=digest,
        ids=pack_ids([5, 6, 7, 8, 9]),
        prompt_length=2,
        logprobs=pack_floats([-1.0, -0.5, -0.25]),
        mask=b"\x01\x01\x01",
        turns=(Turn(2, 5, digest, "stop", 10.0, 11.0, worker="rollout-1"),),
        text="7 8 9",
        stop_reason="stop",
        reward=reward,
        rewards={"answer": reward},
        graders_digest="a" * 64,
        graded_started_at=11.0,
        graded_at=11.5,
    )
