"""What crosses the boundaries between stages: frozen dataclasses, standard library only.

Token ids, log-probs and masks travel as packed little-endian bytes, so that a trajectory can go
through a queue unchanged and be digested; `pack_*` and `unpack_*` are the only code that knows the
layout. Nothing here imports numpy or torch.
"""

from __future__ import annotations

import array
import sys
from dataclasses import dataclass, field

from .errors import RolloutError

assert sys.byteorder == "little", "packed arrays are little-endian; this machine is not"


def pack_ids(ids: list[int]) -> bytes:
    """Token ids (T) to int32 bytes."""
    return array.array("i", ids).tobytes()


def unpack_ids(data: bytes) -> list[int]:
    """int32 bytes to token ids (T)."""
    values = array.array("i")
    values.frombytes(data)
    return values.tolist()


def pack_floats(values: list[float]) -> bytes:
    """Numbers (T) to float32 bytes."""
    return array.array("f", values).tobytes()


def unpack_floats(data: bytes) -> list[float]:
    """float32 bytes to numbers (T)."""
    values = array.array("f")
    values.frombytes(data)
    return values.tolist()


@dataclass(frozen=True)
class AdapterRef:
    """One immutable policy version of a task, as the rollout engine needs it."""

    task: str  # task id
    version: int  # 0 is the untrained adapter
    digest: str  # sha256 hex over the adapter's tensors, engine.adapters.digest
    path: str  # local directory in PEFT format

    @property
    def name(self) -> str:
        """Never reused: (task, version) is the only key, the digest makes it checkable."""
        return f"{self.task}@{self.version}#{self.digest[:12]}"


@dataclass(frozen=True)
class SamplingParams:
    """How to draw tokens. Training samples at temperature alone (`require_on_policy`)."""

    max_new_tokens: int
    temperature: float = 1.0  # > 0
    top_p: float = 1.0  # (0, 1]; 1: off. Keeps the likeliest tokens that reach this mass together
    top_k: int = 0  # keeps so many of the likeliest tokens; 0: off
    min_p: float = 0.0  # [0, 1]; drops tokens below this share of the likeliest one's; 0: off
    stop_ids: tuple[int, ...] = ()  # generation ends after one of these; the stop id is kept
    stop: tuple[str, ...] = ()  # … or once the decoded text has one of these; its tokens are kept

    @property
    def is_truncated(self) -> bool:
        """Whether some tokens are never drawn. Log-probs are then those of the tokens kept."""
        return self.top_p < 1.0 or self.top_k > 0 or self.min_p > 0.0

    def require_on_policy(self) -> None:
        """Raises RolloutError if the log-probs would be those of another distribution."""
        if self.is_truncated:
            raise RolloutError(
                "top_p, top_k and min_p must be off for training: they make the stored log-probs"
                " those of a truncated distribution, which the policy gradient does not correct for"
            )


@dataclass(frozen=True)
class GenerationRequest:
    """One sequence to continue."""

    id: str  # unique while in the engine
    adapter: AdapterRef
    ids: tuple[int, ...]  # all tokens so far, prompt first
    sampling: SamplingParams
    seed: int  # the same seed gives the same tokens in float32, whatever else is in the batch
    # The trajectory that it is a turn of: its KV is kept for the next turn while there is room, and
    # what was kept of the last one is used; "": nothing is kept
    session: str = ""
    needs_prompt_logprobs: bool = False  # for checks of the engine against the trainer


@dataclass(frozen=True)
class Generation:
    """What the engine made of a request. `error` set: the other fields are empty."""

    id: str
    ids: tuple[int, ...] = ()  # new tokens only, a stop id included
    logprobs: tuple[float, ...] = ()  # of the distribution sampled from (temperature applied)
    finish_reason: str = ""  # "stop" | "length" | "cancelled" | "error"
    digest: str = ""  # of the adapter weights that were really applied
    started_at: float = 0.0  # epoch s, prefill began
    finished_at: float = 0.0  # epoch s
    device_s: float = 0.0  # its share of the engine's work; 0: not told
    error: str = ""
    prompt_logprobs: tuple[float, ...] = ()  # of ids[1:], each given those before it, if asked for;
    # of log_softmax(logits / temperature)


@dataclass(frozen=True)
class ToolCall:
    """What a turn asked a tool for."""

    name: str  # as the policy wrote it
    arguments: str  # as the policy wrote them, cut
    error: str = ""  # why there was no result
    duration_s: float = 0.0


@dataclass(frozen=True)
class Turn:
    """One generation of a trajectory, and what it was generated with."""

    start: int  # index of the turn's first generated token in Trajectory.ids
    end: int  # one past its last
    digest: str  # adapter digest the engine reported
    finish_reason: str
    started_at: float  # epoch s
    finished_at: float  # epoch s
    observation: str = ""  # the environment's answer, for people
    worker: str = ""  # name of the rollout worker
    calls: tuple[ToolCall, ...] = ()  # tools that it asked for
    device_s: float = 0.0  # its share of the engine's work; 0: not told


@dataclass(frozen=True)
class TrajectoryKey:
    """Which attempt at which trajectory. Stage calls compare it with the live attempt."""

    task: str
    step: int  # that is trained on it, which makes version `step` + 1 of version `step`
    group: str  # group id
    attempt: int  # 1, 2, … ; a late result of an earlier attempt is dropped
    index: int  # 0 … group_size - 1

    @property
    def name(self) -> str:
        """Of the attempt at the trajectory, for whoever keeps something of it between its turns."""
        return f"{self.group}:{self.attempt}:{self.index}"


@dataclass(frozen=True)
class Trajectory:
    """Token ids, log-probs, loss mask and turns of one attempt at one prompt.

    `ids` is prompt then everything after it (generated tokens and observations). `logprobs` and
    `mask` cover `ids[prompt_length:]` only: log-prob 0.0 and mask 0 for tokens that the policy did
    not generate.
    """

    key: TrajectoryKey
    version: int  # policy version that must generate it: that of `key.step`, or an older one
    digest: str  # that version's adapter digest
    ids: bytes  # int32 (T)
    prompt_length: int
    logprobs: bytes = b""  # float32 (T - prompt_length)
    mask: bytes = b""  # one byte a token (T - prompt_length): 1 = trained on
    turns: tuple[Turn, ...] = ()
    text: str = ""  # decoded completion, for graders and people
    # Why it ended: "stop" | "length" | "turns", "tool_calls", "tool_seconds" (no more allowed) |
    # "error"
    stop_reason: str = ""
    reward: float | None = None  # None: ungraded
    rewards: dict[str, float | None] = field(default_factory=dict)  # by reward function's name
    error: str = ""  # why it is ungraded
    graders_digest: str = ""  # of the reward functions that scored it; "": it is not graded yet
    graded_started_at: float = 0.0  # epoch s
    graded_at: float = 0.0  # epoch s

    @property
    def staleness(self) -> int:
        """Versions that the one which generated it lies behind the one that is trained on it."""
        return self.key.step - self.version

    @property
    def num_tokens(self) -> int:
        """All tokens, prompt included."""
        return len(self.ids) // 4

    @property
    def num_generated(self) -> int:
        """Tokens that the policy generated."""
        return sum(self.mask)

    @property
    def completion_ids(self) -> list[int]:
        """Token ids after the prompt."""
        return unpack_ids(self.ids)[self.prompt_length :]
