"""Section "continuous": sequences of mixed lengths, continuous against static batches.

A static batch takes as many sequences as there are slots and starts the next batch when the last of
them has ended. "padded": each row computes on to the length of the longest, as in a loop over
`generate` with padding; "dropped": a finished row computes nothing more. All three through the
same engine. Only the tokens asked for count.

A static run is made of batches that are alike, so some of them stand for all (`NUM_BATCHES`);
continuous batching has a beginning and an end, so it runs whole.
"""

from __future__ import annotations

import random
import statistics
from typing import Any

from benchmarks.report import Row, at_least

from .bench import Bench
from .figures import median_ratio
from .workload import mixed_lengths, random_ids, static_batches

TIMES_PADDED = 1.8
SHORTEST, LONGEST = 16, 512  # new tokens
PROMPT_TOKENS = 24
NUM_BATCHES = 1  # static batches of each kind in a repetition


def measure(bench: Bench) -> list[Row]:
    total, slots, longest = (64, 16, 128) if bench.is_quick else (1024, 128, LONGEST)
    found: dict[str, list[float]] = {"continuous": [], "padded": [], "dropped": []}
    with bench.ours() as ours:
        ours.call("ours.prepare", count=32)
        for repetition in range(bench.repetitions):
            lengths = mixed_lengths(total, SHORTEST, longest, repetition)
            batches = static_batches(lengths, slots)[:NUM_BATCHES]
            given: dict[str, tuple[list[int], int]] = {
                "continuous": (lengths, sum(lengths)),
                "padded": (batches[0], sum(batches[0])),
                "dropped": (batches[0], sum(batches[0])),
            }
            for name, (chosen, useful) in given.items():
                computed = [max(chosen)] * len(chosen) if name == "padded" else chosen
                seconds = ours.call(
                    "continuous.generate",
                    lengths=computed,
                    num_slots=slots,
                    max_length=PROMPT_TOKENS + longest,
                    seed=repetition,
                )
                found[name].append(useful / seconds)
                bench.say(f"  {name}: {found[name][-1]:,.1f} useful tokens/s")
    title = f"{total:,} sequences of {SHORTEST}–{longest} tokens"
    return [
        *(Row(f"{title}, {name}", statistics.median(v), "tokens/s") for name, v in found.items()),
        at_least(
            "continuous / static, padded",
            median_ratio(found["continuous"], found["padded"]),
            "times",
            TIMES_PADDED,
        ),
        Row(
            "continuous / static, finished rows dropped",
            median_ratio(found["continuous"], found["dropped"]),
            "times",
        ),
    ]


def generate(lengths: list[int], num_slots: int, max_length: int, seed: int) -> float:
    """In the child: seconds until all have ended."""
    from . import ours

    rng, refs = random.Random(seed), ours.adapters(32)
    engine: Any = ours.engine(num_slots, max_length)
    ours.run(engine, [ours.request(ref, [1, 2, 3], 1) for ref in refs])  # adapters are loaded
    requests = [
        ours.request(refs[i % 32], random_ids(rng, PROMPT_TOKENS, ours.vocabulary()), length)
        for i, length in enumerate(lengths)
    ]
    return ours.run(engine, requests).total_s
