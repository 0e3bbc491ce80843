"""Section "continuous": sequences of mixed lengths, continuous against static batches.

A static batch takes as many sequences as there are slots and starts the next batch when the last of
them has ended. "padded": each row computes on to the length of the longest, as in a loop over
`generate` with padding; "dropped": a finished row computes nothing more. All three through the
same engine. Only the tokens asked for count.

A static run is made of batches that are alike, so its first batch stands for all; continuous
batching has a beginning and an end, so it runs whole, and because that takes long, in the middle
turn only (in each with --full).
"""

from __future__ import annotations

import random
import statistics
from typing import Any

from benchmarks.report import Row, at_least

from .bench import Bench
from .workload import mixed_lengths, random_ids, static_batches

TIMES_PADDED = 1.8
SHORTEST, LONGEST = 16, 512  # new tokens
PROMPT_TOKENS = 24


def measure(bench: Bench) -> list[Row]:
    total, slots, longest = (64, 16, 128) if bench.is_quick else (1024, 128, LONGEST)
    found: dict[str, list[float]] = {"continuous": [], "padded": [], "dropped": []}
    with bench.ours() as ours:
        ours.call("ours.prepare", count=32)
        for repetition in range(bench.repetitions):
            lengths = mixed_lengths(total, SHORTEST, longest, repetition)
            batch = static_batches(lengths, slots)[0]
            given = {"padded": batch, "dropped": batch}
            if bench.is_full or repetition == bench.repetitions // 2:
                given["continuous"] = lengths
            for name, chosen in given.items():
                computed = [max(chosen)] * len(chosen) if name == "padded" else chosen
                seconds = ours.call(
                    "continuous.generate",
                    lengths=computed,
                    num_slots=slots,
                    max_length=PROMPT_TOKENS + longest,
                    seed=repetition,
                )
                found[name].append(sum(chosen) / seconds)
                bench.say(f"  {name}: {found[name][-1]:,.1f} useful tokens/s")
    title = f"{total:,} sequences of {SHORTEST}–{longest} tokens"
    middle = {name: statistics.median(speeds) for name, speeds in found.items()}
    rows = [Row(f"{title}, {name}", speed, "tokens/s") for name, speed in middle.items()]
    padded, dropped = (middle["continuous"] / middle[name] for name in ("padded", "dropped"))
    return [
        *rows,
        at_least("continuous / static, padded", padded, "times", TIMES_PADDED),
        Row("continuous / static, finished rows dropped", dropped, "times"),
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
