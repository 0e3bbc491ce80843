"""Section "logprobs": the engine's log-probs against transformers + PEFT on the same ids."""

from __future__ import annotations

import random
import statistics
from itertools import chain
from typing import Any

from benchmarks.report import Row, at_most

from .bench import Bench
from .figures import kl_estimate
from .workload import random_ids

MAX_DIFFERENCE, MEAN_KL = 2e-4, 1e-3
NEW_TOKENS = 64


def measure(bench: Bench) -> list[Row]:
    count, num_adapters = (8, 4) if bench.is_quick else (128, 32)
    found: dict[str, list[dict[str, Any]]] = {}
    for dtype in ("float32", "bfloat16"):
        with bench.ours(dtype, f"ours-{dtype}") as ours:
            found[dtype] = ours.call(
                "logprobs.generate", count=count, num_adapters=num_adapters, num_slots=count
            )
        bench.say(f"  {count} sequences in {dtype}")
    with bench.other("reference") as reference:
        reference.call("reference.load", model=bench.model, folder=str(bench.adapters))
        exact = reference.call("reference.logprobs", sequences=found["float32"], dtype="float32")
        alike = reference.call("reference.logprobs", sequences=found["bfloat16"], dtype="bfloat16")
        true = reference.call("reference.logprobs", sequences=found["bfloat16"], dtype="float32")
    ours_32, ours_16 = flat(found["float32"]), flat(found["bfloat16"])
    apart = [abs(a - b) for a, b in zip(ours_32, [*chain.from_iterable(exact)], strict=True)]
    return [
        at_most("float32 log-probs, largest difference", max(apart), "nats", MAX_DIFFERENCE),
        Row("float32 log-probs, mean difference", statistics.fmean(apart), "nats"),
        Row("float32 log-probs compared", len(apart), "tokens"),
        at_most(
            "bf16 mean KL against transformers in float32",
            kl_estimate(ours_16, [*chain.from_iterable(true)]),
            "nats",
            MEAN_KL,
        ),
        at_most(
            "bf16 mean KL against transformers in bf16",
            kl_estimate(ours_16, [*chain.from_iterable(alike)]),
            "nats",
            MEAN_KL,
        ),
    ]


def flat(sequences: list[dict[str, Any]]) -> list[float]:
    return [value for sequence in sequences for value in sequence["logprobs"]]


def generate(count: int, num_adapters: int, num_slots: int) -> list[dict[str, Any]]:
    """In the child: what each sequence drew, and the engine's log-probs of it."""
    from . import ours

    rng, refs = random.Random(7), ours.adapters(num_adapters)
    prompts = [random_ids(rng, rng.randint(16, 32), ours.vocabulary()) for _ in range(count)]
    requests = [
        ours.request(refs[i % num_adapters], ids, NEW_TOKENS, seed=i)
        for i, ids in enumerate(prompts)
    ]
    done = {g.id: g for g in ours.run(ours.engine(num_slots, 128), requests).done}
    return [
        {
            "adapter": i % num_adapters,
            "ids": prompts[i],
            "new": done[request.id].ids,
            "logprobs": done[request.id].logprobs,
        }
        for i, request in enumerate(requests)
    ]
