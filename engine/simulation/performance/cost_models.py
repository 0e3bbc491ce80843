"""What generating and training cost on a given model and hardware. Arithmetic only.

A rollout pool is one engine whose sequences all advance by one token a decode step, and a decode
step of n sequences takes `step_s + sequence_s * n`: reading the weights once, then computing each
sequence's token. A training pass takes what is stated for the kind of task.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True)
class EngineCost:
    """One rollout engine, be it a device or a pool of them that works as one."""

    step_s: float  # of a decode step, whatever is in it
    sequence_s: float  # of a decode step, for each sequence in it
    slots: int  # sequences at once
    prefill_s: float = 0.0  # for each token that is read or computed again
    kv_tokens: int = 0  # tokens of KV that fit; 0: any number
    tells_kv: bool = True  # whether its worker's heartbeats say so

    @property
    def best_tokens_per_s(self) -> float:
        """Out of reach: what ever more sequences a batch would come to."""
        return 1 / self.sequence_s

    def decode_s(self, sequences: int, adapters: int = 1) -> float:
        """Seconds of a decode step. adapters: how many batches it is made of."""
        return self.step_s * adapters + self.sequence_s * sequences


@dataclass(frozen=True)
class CostModel:
    """A cluster's hardware and base model."""

    name: str
    engine: EngineCost
    pass_s: dict[str, float] = field(default_factory=dict, hash=False)  # by kind of task
    num_engines: int = 1
    num_trainers: int = 1
    # Of a pass over several steps: the longest counts whole, of each other one this share, for they
    # read the weights together, and none of them fills the devices alone.
    joint_share: float = 0.6
    source: str = ""

    def together_s(self, passes_s: Sequence[float]) -> float:
        """Seconds of one pass over several steps."""
        longest = max(passes_s)
        return longest + self.joint_share * (sum(passes_s) - longest)


FIRST_MODEL = CostModel(
    name="first model",
    # 32 accelerators, 256 sequences each (vLLM's default max_num_seqs)
    engine=EngineCost(step_s=0.012, sequence_s=1 / 64_000, slots=8192, prefill_s=1 / 64_000),
    pass_s={"gsm": 2.5, "amc": 5.0, "search": 3.0},
    source="0.6B-like; 12 ms and 64,000 tokens/s assumed, passes of 2.5, 5 and 3 s assumed",
)
