"""Section "alone": the same tokens whatever else is in the batch, in float32 with fixed seeds.

1,000 sequences go through a full engine twice, in two orders, so that each has other neighbours;
some of them (all, with --full) go through it alone, too. Where two runs of a sequence differ, the
draw at the first difference must have been a near thing; a reference that is not the engine says
how near.
"""

from __future__ import annotations

import random
import time
from typing import Any

from benchmarks.report import Row, at_most

from .bench import Bench
from .figures import first_difference
from .serve import say
from .workload import random_ids

NEW_TOKENS, NUM_ADAPTERS = 64, 32
MOST_DIFFERING, NEAR = 4, 1e-4
ALONE = 100  # sequences, without --full

Runs = dict[int, list[int]]  # tokens by number of the sequence


def measure(bench: Bench) -> list[Row]:
    total, slots = (64, 32) if bench.is_quick else (1000, 128)
    alone = 4 if bench.is_quick else total if bench.is_full else ALONE
    with bench.ours("float32") as ours:
        given = {"total": total, "num_slots": slots}
        first = _runs(ours.call("alone.together", order_seed=0, **given))
        second = _runs(ours.call("alone.together", order_seed=1, **given))
        single = _runs(ours.call("alone.one_by_one", total=total, count=alone, timeout_s=7200))
        prompts = ours.call("alone.prompts", total=total)
    differing = {
        f"alone and in a batch of {slots}": _differing(single, first),
        "in two batches": _differing(first, second),
    }
    rows = [Row("sequences run alone", alone, "sequences")]
    with bench.other("reference") as reference:
        reference.call("reference.load", model=bench.model, folder=str(bench.adapters))
        for name, places in differing.items():
            gaps = reference.call(
                "reference.score_gaps",
                sequences=[
                    {
                        "adapter": number % NUM_ADAPTERS,
                        "ids": prompts[number],
                        "new": first[number][: at + 1],
                        "at": at,
                        "seed": number,
                    }
                    for number, at in places.items()
                ],
            )
            far = sum(gap > NEAR for gap in gaps)
            rows += [
                at_most(f"sequences that differ {name}", len(gaps), "sequences", MOST_DIFFERING),
                at_most(f"… where no other token was near, {name}", far, "sequences", 0),
            ]
    return rows


def _runs(found: dict[str, list[int]]) -> Runs:
    return {int(number): tokens for number, tokens in found.items()}


def _differing(some: Runs, others: Runs) -> dict[int, int]:
    """Index of the first token that differs, by number of the sequence."""
    places = {number: first_difference(ids, others[number]) for number, ids in some.items()}
    return {number: at for number, at in places.items() if at is not None}


def prompts(total: int) -> list[list[int]]:
    """In the child."""
    from . import ours

    rng = random.Random(3)
    return [random_ids(rng, rng.randint(16, 32), ours.vocabulary()) for _ in range(total)]


def together(total: int, num_slots: int, order_seed: int) -> dict[int, Any]:
    """In the child: all sequences, as many at once as there are slots."""
    from . import ours

    numbers = list(range(total))
    random.Random(order_seed).shuffle(numbers)
    say(f"{total} sequences in batches of {num_slots}")
    return _run(ours.engine(num_slots, 128), numbers, prompts(total))


def one_by_one(total: int, count: int) -> dict[int, Any]:
    """In the child: the first `count` of them, each without company."""
    from . import ours

    texts, engine, found = prompts(total), ours.engine(1, 128), {}
    start = time.monotonic()
    for number in range(count):
        found |= _run(engine, [number], texts)
        if number % max(1, count // 10) == 0:
            say(f"{number + 1} of {count} alone, {time.monotonic() - start:.0f} s")
    return found


def _run(engine: Any, numbers: list[int], texts: list[list[int]]) -> dict[int, Any]:
    from . import ours

    refs = ours.adapters(NUM_ADAPTERS)
    requests = {
        number: ours.request(refs[number % NUM_ADAPTERS], texts[number], NEW_TOKENS, seed=number)
        for number in numbers
    }
    done = {g.id: g.ids for g in ours.run(engine, list(requests.values())).done}
    return {number: done[request.id] for number, request in requests.items()}
