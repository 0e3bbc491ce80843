"""Section "stall": how long running sequences wait for a token while long prompts arrive.

A gap is the time from one step in which every running sequence got a token to the next such step.
"""

from __future__ import annotations

import random
import statistics
import time
from typing import Any

from benchmarks.report import Row

from .bench import Bench
from .workload import random_ids

PROMPT_TOKENS, FLOOD = 1000, 16
RUNNING = 64
STEPS = 40  # undisturbed


def measure(bench: Bench) -> list[Row]:
    size = 16 if bench.is_quick else RUNNING
    with bench.ours() as ours:
        runs = [ours.call("stall.gaps", size=size, seed=seed) for seed in range(bench.repetitions)]
    rows = []
    for name, title in (
        ("undisturbed", "undisturbed"),
        ("one", f"one prompt of {PROMPT_TOKENS:,} tokens arrives"),
        ("flood", f"{FLOOD} such prompts arrive"),
    ):
        longest = statistics.median(max(run[name]) for run in runs)
        middle = statistics.median(statistics.median(run[name]) for run in runs)
        rows += [
            Row(f"longest gap, {size} running, {title}", 1000 * longest, "ms"),
            Row(f"median gap, {size} running, {title}", 1000 * middle, "ms"),
        ]
        took = statistics.median(sum(run[name]) for run in runs)
        if name != "undisturbed":
            rows.append(Row(f"… until prefilled, {title}", took, "s"))
    return rows


def gaps(size: int, seed: int) -> dict[str, list[float]]:
    """In the child: gaps in seconds, in each of the three situations."""
    from . import ours

    rng, refs = random.Random(seed), ours.adapters(32)
    engine: Any = ours.engine(size + FLOOD, 2048)

    def prompt(length: int) -> list[int]:
        return random_ids(rng, length, ours.vocabulary())

    engine.reset()
    background = [ours.request(refs[i % 32], prompt(24), 1900) for i in range(size)]
    engine.submit(background)
    for _ in range(8):
        engine.step()
    found = {"undisturbed": _gaps(engine, size, lambda step, _: step < STEPS)}
    for name, count in (("one", 1), ("flood", FLOOD)):
        wanted = [ours.request(refs[i % 32], prompt(PROMPT_TOKENS), 1) for i in range(count)]
        engine.submit(wanted)
        missing = {request.id for request in wanted}

        def is_waiting(_: int, done: list[Any], missing: set[str] = missing) -> bool:
            missing -= {generation.id for generation in done}
            return bool(missing)

        found[name] = _gaps(engine, size, is_waiting)
    engine.reset()
    return found


def _gaps(engine: Any, size: int, goes_on: Any) -> list[float]:
    found: list[float] = []
    step, before = 0, engine.stats().tokens_generated
    last = time.perf_counter()
    done: list[Any] = []
    while goes_on(step, done):
        done = engine.step()
        if errors := [generation.error for generation in done if generation.error]:
            raise RuntimeError(errors[0])
        step += 1
        now, tokens = time.perf_counter(), engine.stats().tokens_generated
        if tokens - before >= size:
            found.append(now - last)
            last = now
        before = tokens
    return found
