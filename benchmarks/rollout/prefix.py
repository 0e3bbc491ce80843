"""Section "prefix": the prompts of groups computed once, against every prompt made distinct.

Prefill time: from submission until every sequence has NEW_TOKENS tokens: two, because a prompt is
shared by those whose first sequence is still there when its prompt has been computed.
"""

from __future__ import annotations

import random
import statistics
from typing import Any

from benchmarks.report import Row, at_least

from .bench import Bench
from .figures import median_ratio
from .workload import random_ids

TIMES_LESS = 4.0
PROMPT_TOKENS, GROUP_SIZE, NEW_TOKENS = 1000, 8, 2


def measure(bench: Bench) -> list[Row]:
    groups = 1 if bench.is_quick else 4
    shared: list[float] = []
    distinct: list[float] = []
    with bench.ours() as ours:
        ours.call("ours.prepare", count=groups)
        ours.call("prefix.prefill", groups=groups, is_shared=True, seed=99)  # compiles kernels
        for repetition in range(bench.repetitions):
            for found, is_shared in ((shared, True), (distinct, False)):
                found.append(
                    ours.call("prefix.prefill", groups=groups, is_shared=is_shared, seed=repetition)
                )
            bench.say(f"  shared {shared[-1]:.2f} s, distinct {distinct[-1]:.2f} s")
    tokens = groups * GROUP_SIZE * PROMPT_TOKENS
    title = f"prefill of {groups} × {GROUP_SIZE} prompts of {PROMPT_TOKENS:,} tokens"
    return [
        Row(f"{title}, shared", statistics.median(shared), "s"),
        Row(f"{title}, distinct", statistics.median(distinct), "s"),
        Row("prefill, distinct", statistics.median(tokens / s for s in distinct), "tokens/s"),
        at_least("prefix sharing", median_ratio(distinct, shared), "times less", TIMES_LESS),
    ]


def prefill(groups: int, is_shared: bool, seed: int) -> float:
    """In the child: seconds until each sequence has its tokens."""
    from . import ours

    rng, refs = random.Random(seed), ours.adapters(groups)
    engine: Any = ours.engine(groups * GROUP_SIZE, PROMPT_TOKENS + 24)
    ours.run(engine, [ours.request(ref, [1, 2, 3], 1) for ref in refs])  # adapters are loaded
    requests = []
    for ref in refs:
        prompt = random_ids(rng, PROMPT_TOKENS, ours.vocabulary())
        for _ in range(GROUP_SIZE):
            # Another first token makes everything after it another sequence.
            first = prompt[:1] if is_shared else random_ids(rng, 1, ours.vocabulary())
            requests.append(ours.request(ref, [*first, *prompt[1:]], NEW_TOKENS))
    return ours.run(engine, requests).total_s
