"""What the engines are given: the same token ids for all of them, made from numbers. No torch.

Both sides of a comparison build a workload from the same few numbers, so nothing but those crosses
the pipe between processes.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Workload:
    """Sequences of one batch. Every one generates exactly as many tokens as asked for."""

    num_sequences: int
    num_adapters: int  # spread evenly over the sequences; 0: none is applied
    new_tokens: int
    shortest_prompt: int = 16  # tokens
    longest_prompt: int = 32
    seed: int = 0  # another seed gives other prompts
    vocabulary: int = 49_152

    @property
    def num_tokens(self) -> int:
        """Generated in all."""
        return self.num_sequences * self.new_tokens

    def prompts(self) -> list[list[int]]:
        """Random token ids; no two prompts share a prefix worth caching."""
        rng = random.Random(self.seed)
        lengths = [
            rng.randint(self.shortest_prompt, self.longest_prompt)
            for _ in range(self.num_sequences)
        ]
        return [random_ids(rng, length, self.vocabulary) for length in lengths]

    def adapters(self) -> list[int | None]:
        """Which adapter each sequence uses, shuffled: tasks do not arrive in order."""
        if not self.num_adapters:
            return [None] * self.num_sequences
        chosen: list[int | None] = [i % self.num_adapters for i in range(self.num_sequences)]
        random.Random(self.seed + 1).shuffle(chosen)
        return chosen


def random_ids(rng: random.Random, length: int, vocabulary: int) -> list[int]:
    """Ids that are not special tokens, which come first in a vocabulary."""
    return [rng.randrange(vocabulary // 8, vocabulary) for _ in range(length)]


def mixed_lengths(count: int, shortest: int, longest: int, seed: int) -> list[int]:
    """New tokens of each of `count` sequences, uniform between the bounds, in random order."""
    rng = random.Random(seed)
    return [rng.randint(shortest, longest) for _ in range(count)]


def static_batches(lengths: Iterable[int], size: int) -> list[list[int]]:
    """Cut into batches in the order of arrival, as a server without continuous batching would."""
    rest = list(lengths)
    return [rest[i : i + size] for i in range(0, len(rest), size)]
